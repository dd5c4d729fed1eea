"""Serve a practice model by itself, for tests, demonstrations and benchmarks.

    python -m scv.providers.practice [--script FILE] [--port N]

Prints one JSON line with `url` and `token`, then serves until it is ended.
"""

import json
import sys
from pathlib import Path

import anyio

from scv.errors import ConfigError
from scv.providers.practice.script import Script
from scv.providers.practice.server import PracticeServer


async def _serve(server: PracticeServer) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        line = json.dumps({"url": server.base_url, "token": server.token})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    port = options.get("--port", "0")
    if len(arguments) % 2 or options.keys() - {"--script", "--port"}:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    if not port.isdigit():
        sys.stderr.write("--port takes a number\n")
        return 2
    try:
        script = options.get("--script")
        respond = Script.load(Path(script)).reply if script else None
        anyio.run(_serve, PracticeServer(respond, port=int(port)))
    except (ConfigError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
