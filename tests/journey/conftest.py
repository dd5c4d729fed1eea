"""The checkout to work in, and a scripted model in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Place
from tests.journey.checkout import ROOT, Checkout, check_out
from tests.journey.script import SCRIPT, Practice


@pytest.fixture
def checkout(scv_home: Path, tmp_path: Path) -> Checkout:
    """Return a broken copy of this repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout of this repository")
    return check_out(tmp_path)


@pytest.fixture
def place(scv_home: Path, checkout: Checkout) -> Place:
    """Return where `scv` runs: in the checkout, finding its `python`."""
    return Place(scv_home, checkout.workspace, {"PATH": checkout.path})


@pytest.fixture
def practice(scv_home: Path, tmp_path: Path, no_leftovers: None) -> Iterator[Practice]:
    """Run the script's player and make it the configured model."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command = [sys.executable, "-m", "scv.providers.practice", "--script", script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            practice = Practice(told["url"], told["token"])
            _configure(scv_home, practice)
            yield practice
        finally:
            process.terminate()


def _configure(scv_home: Path, practice: Practice) -> None:
    scv_home.mkdir(mode=0o700)
    path = scv_home / "config.toml"
    path.touch(mode=0o600)
    path.write_text(
        'provider.active = "scripted"\n'
        "[providers.scripted]\n"
        'wire_api = "responses"\nmodel = "script"\n'
        f'base_url = "{practice.url}"\napi_key = "{practice.key}"\n'
    )
