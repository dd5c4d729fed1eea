"""What is measured: each row runs SCV and, where it has one, its floor, in turn."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

from client import Client, Scv

HERE = Path(__file__).parent
PYTHON = sys.executable
SCV = str(Path(PYTHON).with_name("scv"))


class Bench:
    """One run: a provider process, a home, a workspace, an empty HOME."""

    def __init__(self, runs):
        self.runs = runs
        self.folder = Path(tempfile.mkdtemp(prefix="scv-bench-"))
        self.provider = subprocess.Popen(
            [PYTHON, HERE / "provider.py"], stdout=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{self.provider.stdout.readline().strip()}/v1"
        for name in ("home", "scv", "workspace"):
            (self.folder / name).mkdir(mode=0o700)
        self.workspace = str(self.folder / "workspace")
        self.environment = {
            "HOME": str(self.folder / "home"),
            "SCV_HOME": str(self.folder / "scv"),
            "PATH": os.environ["PATH"],
            "BENCH_KEY": "k",
            "LANG": "C.UTF-8",
        }
        config = self.folder / "scv" / "config.toml"
        config.write_text(
            'provider.active = "bench"\n[providers.bench]\nmodel = "m"\n'
            f'base_url = "{self.url}"\napi_key_env = "BENCH_KEY"\n'
        )
        config.chmod(0o600)

    def close(self):
        self.provider.terminate()
        self.provider.wait()
        shutil.rmtree(self.folder)

    def scv(self):
        return Scv([SCV, "server", "--stdio"], self.environment)

    def floor(self):
        return Client([PYTHON, str(HERE / "floor_lsp.py")], self.environment)

    def floor_prompt(self, text):
        return {"url": self.url, "token": "k", "text": text}

    def repeat(self, *measures):
        """Run the measures in turn, `runs` times after a warm-up; lists of figures."""
        results = [[] for _ in measures]
        for number in range(self.runs + 1):
            for result, measure in zip(results, measures, strict=True):
                figure = measure()
                if number:
                    result.append(figure)
        return results


def command_ms(argv, environment, cwd):
    """Wall time of a whole process, and the peak memory of its tree's largest, MB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        argv,
        env=environment,
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{argv} exited with {process.returncode}")
    return (time.perf_counter() - start) * 1000, usage.ru_maxrss / 1024


def python_floor(bench):
    return command_ms([PYTHON, "-c", "pass"], bench.environment, bench.workspace)[0]


def initialize(bench):
    def ours():
        client = bench.scv()
        client.handshake()
        taken = (time.perf_counter() - client.started) * 1000
        client.close()
        return taken

    def floor():
        client = bench.floor()
        client.request("initialize", {})
        taken = (time.perf_counter() - client.started) * 1000
        client.close()
        return taken

    return bench.repeat(ours, floor)


def first_delta(bench):
    def ours():
        client = bench.scv()
        client.handshake()
        client.start(client.create(bench.workspace), "say 1")
        client.until("item.delta")
        taken = (time.perf_counter() - client.started) * 1000
        client.until("turn.ended")
        client.close()
        return taken

    def floor():
        client = bench.floor()
        client.request("initialize", {})
        seen = []
        client.request(
            "prompt",
            bench.floor_prompt("say 1"),
            on_message=lambda _: seen.append(time.perf_counter()),
        )
        client.close()
        return (seen[0] - client.started) * 1000

    return bench.repeat(ours, floor)


def warm_turn(bench):
    client, floor_client = bench.scv(), bench.floor()
    client.handshake()
    session = client.create(bench.workspace)
    client.turn(session, "say 20")

    def ours():
        start = time.perf_counter()
        client.turn(session, "say 20")
        return (time.perf_counter() - start) * 1000

    def floor():
        start = time.perf_counter()
        floor_client.request("prompt", bench.floor_prompt("say 20"))
        return (time.perf_counter() - start) * 1000

    figures = bench.repeat(ours, floor)
    client.close()
    floor_client.close()
    return figures


def bash_call(bench):
    client = bench.scv()
    client.handshake()
    session = client.create(bench.workspace)
    client.turn(session, "say 1")

    def ours():
        session = client.create(bench.workspace)
        start = time.perf_counter()
        client.turn(session, "bash 20 true")
        return (time.perf_counter() - start) * 1000 / 20

    def floor():
        start = time.perf_counter()
        for _ in range(20):
            subprocess.run(
                ["/bin/bash", "-lc", "true"], env=bench.environment, check=True
            )
        return (time.perf_counter() - start) * 1000 / 20

    figures = bench.repeat(ours, floor)
    client.close()
    return figures


def delta_lag(bench):
    """p50 and p95 of the time from the provider's write to the client's read, ms."""
    client, floor_client = bench.scv(), bench.floor()
    client.handshake()
    session = client.create(bench.workspace)
    client.turn(session, "say 1")
    count = 200

    def lags_of(pieces):
        lags = sorted((read - int(sent)) / 1e6 for read, sent in pieces)
        return lags[len(lags) // 2], lags[int(len(lags) * 0.95)]

    def ours():
        client.start(session, f"rate {count} 100")
        pieces = []
        for event in client.events():
            if event["type"] == "item.delta":
                now = time.monotonic_ns()
                pieces += [(now, sent) for sent in event["data"]["append"].split()]
            if event["type"] == "turn.ended":
                return lags_of(pieces)

    def floor():
        pieces = []
        floor_client.request(
            "prompt",
            bench.floor_prompt(f"rate {count} 100"),
            on_message=lambda m: pieces.append((time.monotonic_ns(), m["params"])),
        )
        return lags_of(pieces)

    figures = bench.repeat(ours, floor)
    client.close()
    floor_client.close()
    return figures


def flood(bench):
    """20,000 deltas at full speed: seconds, CPU seconds, resident MB afterwards."""

    def measure(client, act):
        before, start = cpu_seconds(client.process.pid), time.perf_counter()
        act()
        taken = time.perf_counter() - start
        cpu = cpu_seconds(client.process.pid) - before
        return taken, cpu, resident_mb(client.process.pid)

    def ours():
        client = bench.scv()
        client.handshake()
        session = client.create(bench.workspace)
        client.turn(session, "say 1")
        figures = measure(client, lambda: client.turn(session, "say 20000"))
        client.close()
        return figures

    def floor():
        client = bench.floor()
        client.request("prompt", bench.floor_prompt("say 1"))
        figures = measure(
            client, lambda: client.request("prompt", bench.floor_prompt("say 20000"))
        )
        client.close()
        return figures

    return bench.repeat(ours, floor)


def idle_session(bench):
    """Resident MB of one more idle session, over 50 of them."""
    client = bench.scv()
    client.handshake()
    client.turn(client.create(bench.workspace), "say 1")
    before = resident_mb(client.process.pid)
    for _ in range(50):
        client.create(bench.workspace)
    grown = (resident_mb(client.process.pid) - before) / 50
    client.close()
    return [[grown]]


def cancel_stream(bench):
    client = bench.scv()
    client.handshake()
    session = client.create(bench.workspace)

    def ours():
        turn = client.start(session, "forever")["turnId"]
        client.until("item.delta")
        start = time.perf_counter()
        client.act("scv/turn/cancel", sessionId=session, turnId=turn)
        client.until("turn.ended")
        return (time.perf_counter() - start) * 1000

    figures = bench.repeat(ours)
    client.close()
    return figures


def cancel_tool(bench):
    """Turn over, tool gone (ms), processes left."""
    client = bench.scv()
    client.handshake()
    session = client.create(bench.workspace)
    mark = "86399.25"

    def sleeping():
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    argv = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if argv[:2] == [b"sleep", mark.encode()]:
                    found.append(entry)
        return found

    def ours():
        turn = client.start(session, f"bash 1 sleep {mark}")["turnId"]
        for event in client.events():
            if event["type"] == "approval.resolved":
                break
        while not sleeping():
            time.sleep(0.005)
        start = time.perf_counter()
        client.act("scv/turn/cancel", sessionId=session, turnId=turn)
        client.until("turn.ended")
        over = (time.perf_counter() - start) * 1000
        while left := sleeping():
            if time.perf_counter() - start > 10:
                break
        return over, (time.perf_counter() - start) * 1000, len(left)

    figures = bench.repeat(ours)
    client.close()
    return figures


def one_shot(bench):
    def ours():
        return command_ms([SCV, "exec", "say 20"], bench.environment, bench.workspace)

    def floor():
        return command_ms(
            [PYTHON, str(HERE / "floor_http.py"), bench.url, "k", "say 20"],
            bench.environment,
            bench.workspace,
        )

    return bench.repeat(ours, floor)


def version(bench):
    def ours():
        return command_ms([SCV, "--version"], bench.environment, bench.workspace)[0]

    return bench.repeat(ours, lambda: python_floor(bench))


def first_body(bench):
    """Size of the first request with all built-in tools, KB."""
    other = Bench(1)
    try:
        client = other.scv()
        client.handshake()
        client.turn(client.create(other.workspace), "say 1")
        client.close()
        with urlopen(other.url.replace("/v1", "/size")) as response:
            return [[int(response.read()) / 1000]]
    finally:
        other.close()


def search(bench):
    """Seconds for a word in 50,000 files: ripgrep, Python, `grep -r`."""
    tree = bench.folder / "tree"
    words = " ".join(f"word{n}" for n in range(200))
    for number in range(50_000):
        place = tree / f"d{number // 500}"
        if number % 500 == 0:
            place.mkdir(parents=True)
        needle = "needle" if number % 1000 == 7 else "hay"
        (place / f"f{number}.txt").write_text(f"{words}\n{needle} {number}\n")
    code = (
        "import asyncio, json, sys\n"
        "from scv.config.settings import ToolSettings\n"
        "from scv.host.workspace import Workspace\n"
        "from scv.tools.search import SearchTool\n"
        "async def main():\n"
        "    tool = SearchTool(Workspace(sys.argv[1]), ToolSettings())\n"
        "    call = await tool.prepare({'pattern': 'needle'})\n"
        "    result = await tool.run(call, None)\n"
        "    assert result.success, result.output\n"
        "asyncio.run(main())\n"
    )
    without_ripgrep = dict(bench.environment, PATH=os.path.dirname(PYTHON))

    def tool(environment):
        return lambda: command_ms([PYTHON, "-c", code, str(tree)], environment, "/")[0]

    def grep():
        return command_ms(["grep", "-rn", "needle", str(tree)], bench.environment, "/")[
            0
        ]

    measures = [tool(without_ripgrep), grep]
    if shutil.which("rg"):
        measures.insert(0, tool(bench.environment))
    figures = bench.repeat(*measures)
    shutil.rmtree(tree)
    return figures


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0
