"""Servers under strace: killed at a sync, or with every sync and write on record."""

import os
import shutil
import subprocess

from tests.server.kit import ROOT, Place, Running, server_command

HAS_STRACE = shutil.which("strace") is not None


def start_traced(place: Place, *options: str) -> Running:
    """Start a server below strace; the process that is started is the server's own."""
    errors = place.workspace.parent / "stderr-traced"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            ["strace", "-D", "-f", "-qq", *options, *server_command()],
            cwd=ROOT,
            env={**os.environ, **place.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            bufsize=0,
        )
    return Running(process, errors)


def kill_at_sync(place: Place, number: int) -> Running:
    """Start a server that dies when a thread of it begins its sync of this number."""
    return start_traced(
        place,
        *("-o", os.devnull),
        *("-e", "trace=fsync,fdatasync"),
        *("-e", f"inject=fsync,fdatasync:signal=KILL:when={number}"),
    )
