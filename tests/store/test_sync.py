"""When something is on the disk, seen from outside the process."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scv.store import open_store
from tests.store import sample

ROOT = Path(__file__).parent.parent.parent
SYNC = re.compile(r"(?:fsync|fdatasync)(?:\(\d+\)| resumed>\))\s+= 0")
LOG_WRITE = re.compile(r"pwrite64\((\d+)")


def trace(folder: Path, *arguments: str) -> list[str]:
    """Run a child under strace; return its system calls in the order they ended."""
    log = folder / "trace"
    command = [
        *("strace", "-f", "-qq", "-o", str(log)),
        *("-e", "trace=fsync,fdatasync,write,pwrite64"),
        *(sys.executable, "-m", "tests.store.child", str(folder / "state")),
        *arguments,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if "<unfinished" not in line]


def said(line: str) -> str | None:
    """Return what the child wrote on stdout with this call."""
    found = re.search(r'write\(1, "(.*)\\n"', line)
    return found[1] if found else None


@pytest.mark.needs_program("strace")
def test_a_commit_is_synced_to_disk_before_its_caller_goes_on(tmp_path: Path) -> None:
    lines = trace(tmp_path, "steps", "s_1", "25")

    kept, written, synced = 0, False, False
    for line in lines:
        if LOG_WRITE.search(line):
            written, synced = True, False
        elif SYNC.search(line) and written:
            synced = True
        elif (said(line) or "").startswith("kept"):
            kept += 1
            assert synced, f"answer {kept} came before its sync"
            written = synced = False
    assert kept == 25


@pytest.mark.needs_program("strace")
def test_an_empty_commit_syncs_what_was_written_before_without_one(
    tmp_path: Path,
) -> None:
    lines = trace(tmp_path, "carried", "s_1", "200")

    said_at = {said(line): index for index, line in enumerate(lines) if said(line)}
    between = lines[said_at["read"] : said_at["kept"]]
    assert any(SYNC.search(line) for line in between)


@pytest.mark.needs_program("strace")
def test_commits_at_the_same_time_share_their_syncs(tmp_path: Path) -> None:
    lines = trace(tmp_path, "group", "s_1", "300")

    said_at = {said(line): index for index, line in enumerate(lines) if said(line)}
    between = lines[said_at["begin"] : said_at["kept"]]
    syncs = sum(bool(SYNC.search(line)) for line in between)
    assert 1 <= syncs <= 30


@pytest.mark.anyio
async def test_what_is_enqueued_is_in_the_file_within_a_quarter_of_a_second(
    tmp_path: Path,
) -> None:
    log = tmp_path / "sessions.db-wal"
    async with open_store(str(tmp_path)) as store:
        await store.commit((sample.session("s_1"),))
        before = log.stat().st_mtime_ns
        start = time.monotonic()
        store.enqueue((sample.event("s_1", 1),))
        while log.stat().st_mtime_ns == before:
            await anyio_checkpoint()
            assert time.monotonic() - start < 5 * 0.25


async def anyio_checkpoint() -> None:
    """Let the event loop turn once."""
    from anyio.lowlevel import checkpoint

    await checkpoint()
