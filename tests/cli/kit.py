"""Run `scv` as a person or a script does: a real process in a directory of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.fakes.model_server import ModelServer

ROOT = Path(__file__).parent.parent.parent
SCV = (sys.executable, "-m", "scv")
WAIT_SECONDS = 60.0
"""Longest wait for anything; a test that waits longer has failed."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A workspace, and the instance that belongs to it."""

    home: Path
    workspace: Path
    more: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the variables of every process started here."""
        names = ("PATH", "HOME", "TMPDIR", "SCV_HOME", "LANG")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **self.more}

    def use_model(self, model: ModelServer) -> None:
        """Make a model server the configured one."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        path = self.home / "config.toml"
        path.touch(mode=0o600)
        path.write_text(
            'provider.active = "fake"\n'
            "[providers.fake]\n"
            f'model = "fake-1"\nbase_url = "{model.url}"\napi_key = "{model.key}"\n'
        )

    def run(self, *arguments: str, stdin: str | None = None) -> "Done":
        """Run a command to its end, without a terminal."""
        done = subprocess.run(
            [*SCV, *arguments],
            cwd=self.workspace,
            env=self.environment(),
            input=b"" if stdin is None else stdin.encode(),
            capture_output=True,
            timeout=WAIT_SECONDS,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, **streams: Any) -> "subprocess.Popen[bytes]":
        """Start a command and leave it running; its group is its own."""
        return subprocess.Popen(
            [*SCV, *arguments],
            cwd=self.workspace,
            env=self.environment(),
            start_new_session=True,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **streams},
        )


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    def events(self) -> list[Json]:
        """Read the output of `exec --json`."""
        return [json.loads(line) for line in self.out.splitlines()]


def commands_of(place: Place) -> list[list[str]]:
    """List the command lines of all processes that belong to the place's instance."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SCV_HOME") == str(place.home):
                found.append(process.cmdline())
        except (psutil.Error, OSError):
            continue  # gone, or another person's
    return found


def interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Do what Ctrl+C does to a program in the foreground."""
    os.killpg(process.pid, signal.SIGINT)
