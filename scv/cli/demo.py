"""`scv demo`: the main job on a small broken project that nobody needs.

Project, sessions and configuration are in a temporary directory, which is deleted at
the end. The practice model follows the prompts; everything else is the real thing.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scv.cli.arguments import GlobalOptions
from scv.cli.paper import Paper
from scv.cli.sessions import short_path
from scv.values import frozen

if TYPE_CHECKING:
    from scv.client import Client

Json = dict[str, Any]

PROJECT = {
    "shop/__init__.py": "",
    "shop/prices.py": '''\
"""Prices of the shop."""


def total(prices: list[int], discount: int = 0) -> float:
    """Add prices up and take a discount in percent off."""
    return sum(prices) * (100 + discount) / 100
''',
    "test_prices.py": """\
import unittest

from shop.prices import total


class Prices(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(total([20, 30]), 50)

    def test_discount(self):
        self.assertEqual(total([20, 30], discount=10), 45)
""",
}
BROKEN = "(100 + discount)"
RIGHT = "(100 - discount)"


@frozen
class Step:
    """One prompt; `refused` is what the demo by itself says no to."""

    says: str
    prompt: str
    refused: str | None = None


def _steps() -> tuple[Step, ...]:
    python = "python3" if shutil.which("python3") else sys.executable
    tests = f"run {python} -B -m unittest"
    return (
        Step(
            "A project with a bug. Looking around is free of questions.",
            'list then search "discount" in shop then read shop/prices.py',
        ),
        Step("Running a command asks first. A test fails.", tests),
        Step(
            "Changing a file asks, and shows the difference.",
            f'replace "{BROKEN}" with "{RIGHT}" in shop/prices.py',
        ),
        Step("The tests again.", tests),
        Step(
            "And something you do not want: it is denied, and nothing happens.",
            "run rm -rf shop",
            refused="not in this demo",
        ),
    )


def run_demo() -> int:
    """Run the demo; a person answers its questions where there is a terminal."""
    from scv.cli.terminal import has_terminal, run_screen

    with _workspace() as options:
        if not has_terminal():
            status = _by_itself(options)
        else:
            Paper().print(_introduction())
            prompts = tuple(step.prompt for step in _steps())
            status = run_screen(options, frozenset(), suggestions=prompts)
        _summary()
    return status


@contextmanager
def _workspace() -> Iterator[GlobalOptions]:
    """Make the project, go there, and delete it in the end."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="scv-demo-") as folder:
        project = Path(folder, "project")
        for name, text in PROJECT.items():
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        os.chdir(project)
        try:
            yield GlobalOptions(home=str(Path(folder, "home")), provider="practice")
        finally:
            os.chdir(before)


def _introduction() -> Any:
    from rich.text import Text

    return Text(
        "A small project with a bug, in a temporary directory. The prompts are"
        " suggested to you:\nEnter runs one, and you answer what SCV asks."
        " The last one is for you to deny.\nCtrl+C twice leaves.\n"
    )


def _summary() -> None:
    """Say what became of the project, by looking at it."""
    from rich.text import Text

    path = Path("shop/prices.py")
    text = path.read_text() if path.exists() else ""
    if not text:
        fate = "The shop is gone: you allowed what you were asked about."
    elif RIGHT in text:
        fate = "The bug is fixed, the tests were run, and the shop is still there."
    else:
        fate = "The bug is still there."
    scv = _this_command()
    Paper(columns=80).print(
        Text.assemble(
            ("\nDone. ", "bold green"),
            fate,
            " Everything was in a temporary directory.\n",
            ("Next, without a model, in a directory of your own:\n", "bold"),
            f"  {scv} --provider practice\n",
            ("Where the configuration of your model goes:\n", "bold"),
            f"  {scv} config path",
        )
    )


def _this_command() -> str:
    """Name this program so that it can be started from any directory."""
    beside = Path(sys.executable).with_name("scv")
    if shutil.which("scv") or not beside.exists():
        return "scv"
    return short_path(str(beside))


def _by_itself(options: GlobalOptions) -> int:
    """Run all steps and answer every question visibly."""
    import anyio

    async def run() -> int:
        from scv.app import in_process
        from scv.cli.options import embedded_options
        from scv.client import connect

        story = _Story()
        async with (
            in_process(embedded_options(options)) as stream,
            connect(stream, name="scv demo", on_approval=story.answer) as client,
        ):
            return await story.tell(client, options.session_config())

    return anyio.run(run)


class _Story:
    """Plays the steps as one session and prints what happens."""

    def __init__(self) -> None:
        self._out = Paper(columns=80)
        self._step: Step

    async def tell(self, client: "Client", config: Json) -> int:
        from rich.rule import Rule
        from rich.text import Text

        session = await client.create_session(
            os.getcwd(), config=config, channel="demo", on_events=self._show
        )
        steps = _steps()
        for number, self._step in enumerate(steps, 1):
            self._out.print(Rule(style="dim"))
            self._out.print(
                Text.assemble((f"{number}/{len(steps)} ", "dim"), self._step.says)
            )
            started = await session.prompt(self._step.prompt)
            turn = await session.ended(started["turnId"])
            if turn["status"] != "completed":
                return 1
        self._out.print(Rule(style="dim"))
        return 0

    async def answer(self, approval: Json) -> Json:
        from scv.cli.terminal.questions import question_block
        from scv.client import decide

        self._out.print(question_block(approval)[0])
        if self._step.refused is not None:
            return decide(approval, "deny", self._step.refused)
        return decide(approval, "allow_once")

    def _show(self, batch: Json, events: tuple[Json, ...]) -> None:
        from scv.cli.terminal import blocks
        from scv.cli.terminal.questions import answer_line

        for event in events:
            data = event["data"]
            match event["type"]:
                case "item.completed":
                    block = blocks.item_block(data["item"], was_asked=True)
                    self._out.print(block)
                case "approval.resolved":
                    self._out.print(blocks.quiet_block(answer_line(data)))
                case "turn.ended":
                    self._out.print(blocks.end_block(data))
