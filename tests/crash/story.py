"""What the model does with each prompt, and what a prompt's commands leave behind.

A prompt's text is its tag. The story of a tag is a list of answers, one for each
model request of its turn; the number of outputs after the tag says which is due.
So a story goes on where it stood, whatever happened to the server meanwhile.

The judge stands outside: every command appends one line of its own to `lines`.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio import fail_after, wait_readable

from tests.fakes.model_server import (
    USAGE,
    Answer,
    Json,
    Request,
    Step,
    completed,
    delta,
    done,
    function_call,
    message,
)

WAIT_SECONDS = 30.0


def say(*pieces: str, gate: threading.Event | None = None) -> Answer:
    """Answer with text; a gate holds what comes after the pieces."""
    steps: list[Step] = [delta(piece) for piece in pieces]
    if gate is not None:
        steps.append(gate)
    return Answer([*steps, done(message("".join(pieces))), completed(USAGE)])


def silence(gate: threading.Event) -> Answer:
    """Answer with a head and nothing more until the gate opens."""
    return Answer([gate, *say("late").steps])


def busy() -> Answer:
    """Ask the client to come again in a while."""
    headers = {"content-type": "application/json", "retry-after": "20"}
    return Answer([b'{"error":{"message":"busy"}}'], 503, headers, "length")


def call(tag: str, number: int, command: str) -> Answer:
    """Answer with a word and one command."""
    item = function_call("bash", {"command": command}, f"{tag}_{number}")
    said = f"{tag} runs {number}"
    return Answer(
        [delta(said), done(message(said)), done(item, 1), completed(USAGE)],
    )


class Pipe:
    """A named pipe that this process holds open at both ends."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    async def told(self) -> None:
        """Wait until somebody wrote a line."""
        with fail_after(WAIT_SECONDS):
            await wait_readable(self._fd)
        os.read(self._fd, 4096)

    def tell(self) -> None:
        """Let one reader of a line go on."""
        os.write(self._fd, b"go\n")

    def close(self) -> None:
        """Let go."""
        os.close(self._fd)


@dataclass
class Teller:
    """Answers model requests by their stories; give its `answer` to a model server."""

    folder: Path
    stories: dict[str, list[Answer]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """How many requests came for a tag."""
    problems: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """Holds the stories of the running round; the next round has a new one."""
    on_asked: Callable[[], None] = lambda: None
    """Called in the model's thread."""
    pipes: list[Pipe] = field(default_factory=list)

    def answer(self, request: Request) -> Answer:
        """Find the story of a request; what is no valid history is a problem."""
        tag, outputs = "", 0
        open_calls: set[str] = set()
        for item in request.input:
            if item.get("type") == "function_call":
                open_calls.add(item["call_id"])
            elif item.get("type") == "function_call_output":
                if item["call_id"] not in open_calls:
                    self.problems.append(f"an output without a call: {item}")
                open_calls.discard(item["call_id"])
                outputs += 1
            elif item.get("role") == "user" and item["content"] in self.stories:
                tag, outputs = item["content"], 0
        if open_calls:
            self.problems.append(f"calls without an output: {open_calls}")
        self.asked[tag] = self.asked.get(tag, 0) + 1
        self.on_asked()
        story = self.stories.get(tag, [])
        return story[outputs] if outputs < len(story) else say(f"{tag} is done")

    def line(self, tag: str, number: int) -> str:
        """Name the line that a command of a prompt appends."""
        return f"{tag}.{number}"

    def append(self, tag: str, number: int) -> str:
        """Write the command that appends its line and ends."""
        return f"echo {self.line(tag, number)} >> lines"

    def append_and_wait(self, tag: str, number: int, *, deaf: bool = False) -> "Held":
        """Write the command that appends its line, says so, and waits."""
        ready = Pipe(self.folder / f"{tag}.{number}.ready")
        gate = Pipe(self.folder / f"{tag}.{number}.gate")
        self.pipes += [ready, gate]
        trap = "trap '' TERM; " if deaf else ""
        return Held(
            f"{trap}{self.append(tag, number)}; echo > '{ready.path}';"
            f" read -r _ < '{gate.path}'",
            ready,
            gate,
        )

    def release(self) -> None:
        """Let every held answer and command go on."""
        self.gate.set()
        self.gate = threading.Event()
        for pipe in self.pipes:
            pipe.tell()

    def close(self) -> None:
        """Let go of every pipe; no command waits any more."""
        for pipe in self.pipes:
            pipe.close()
        self.pipes.clear()


@dataclass(frozen=True)
class Held:
    """A command that waits; `ready` tells that its line is written."""

    command: str
    ready: Pipe
    gate: Pipe


def text_input(text: str) -> list[dict[str, Any]]:
    """Build the input of a prompt."""
    return [{"type": "text", "text": text}]


__all__ = ["Answer", "Held", "Json", "Pipe", "Teller", "busy", "call", "say", "silence"]
