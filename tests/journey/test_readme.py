"""What README.md promises a newcomer is what happens."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from scv import __version__
from tests.cli.kit import Place
from tests.cli.terminal import ENTER, Terminal
from tests.journey.checkout import ROOT

README = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    """Return the text below a heading."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.M | re.S)
    assert found, f"README.md has no section {title}"
    return found[1]


def block(title: str, language: str) -> str:
    """Return the first code block of a language in a section."""
    found = re.search(rf"^```{language}\n(.*?)^```$", section(title), re.M | re.S)
    assert found, f"README.md has no block of {language} in {title}"
    return found[1]


def commands(title: str) -> list[list[str]]:
    """Read the command lines of a section, without their comments."""
    lines = block(title, "sh").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def greeter(scv_home: Path, no_leftovers: None) -> Place:
    """Make the project of the first session, in the home directory."""
    workspace = scv_home.parent / "greeter"
    workspace.mkdir()
    (workspace / "greeting.py").write_text(
        'import sys\n\nprint("Helo, " + sys.argv[1])\n'
    )
    return Place(scv_home, workspace)


def test_two_commands_are_all_it_takes() -> None:
    named = commands("Try it")

    assert named == [["scripts/demo"], ["scripts/test"]]
    assert all(os.access(ROOT / name, os.X_OK) for (name,) in named)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.usefixtures("no_leftovers")
def test_demo_does_the_main_job_by_itself(scv_home: Path) -> None:
    if not (ROOT / ".venv" / "stamp").exists():
        pytest.skip("the checkout has no .venv yet; scripts/demo makes it")
    subprocess.run([ROOT / "scripts" / "_venv", "dev"], check=True)

    done = subprocess.run(
        [ROOT / "scripts" / "demo"],
        cwd=ROOT.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    steps = re.split(r"^─+\n(\d)/5 ", done.stdout, flags=re.M)
    assert steps[1::2] == ["1", "2", "3", "4", "5"]
    looking, failing, mending, passing, denying = steps[2::2]
    assert "→" not in looking  # nothing was asked
    assert "→ allowed once" in failing
    assert "FAILED (failures=1)" in failing
    assert "→ allowed once" in mending
    assert "+    return sum(prices) * (100 - discount) / 100" in mending
    assert "→ allowed once" in passing
    assert re.search(r"^ +OK$", passing, re.M)
    assert "→ denied" in denying
    assert "The bug is fixed, the tests were run, and the shop is still there." in (
        denying
    )
    assert list(scv_home.parent.iterdir()) == []  # the home directory


def test_first_session_looks_as_it_is_shown(greeter: Place) -> None:
    """Each line of the capture was on the screen, with the version of today."""
    shown = block("A first session", "text").splitlines()
    prompts = [line[2:] for line in shown if line.startswith("> ")]
    assert len(prompts) == 3
    seen: set[str] = set()

    with Terminal(greeter, "--provider", "practice", columns=90) as terminal:
        terminal.wait_for("ready")
        for prompt in prompts:
            terminal.type(f"{prompt}{ENTER}")
            if not prompt.startswith("list"):
                seen.update(terminal.wait_for("[y] allow once").splitlines())
                terminal.type("y")
            seen.update(terminal.wait_for(f" • {prompt.split()[0]}").splitlines())
            terminal.wait_for("ready")
        seen.update(terminal.text.splitlines())

    assert shown[0].startswith(f"SCV {__version__} · ")
    assert [line for line in shown if line not in seen] == []
    mended = (greeter.workspace / "greeting.py").read_text()
    assert mended == 'import sys\n\nprint("Hello, " + sys.argv[1])\n'


def test_lines_that_connect_a_model_are_read(greeter: Place) -> None:
    greeter.home.mkdir(mode=0o700)
    config = greeter.home / "config.toml"
    config.touch(mode=0o600)
    config.write_text(block("Connect a model", "toml"))

    done = greeter.run("config", "show")

    assert (done.status, done.err) == (0, "")
    ours = [line.split()[0] for line in done.out.splitlines() if str(config) in line]
    assert ours == [
        "provider.active",
        "providers.openai.model",
        "providers.openai.api_key_env",
    ]
