"""A terminal for tests: a real pty, and what a person would see on it.

    with Terminal(place, "--provider", "practice") as terminal:
        terminal.wait_for("ready")
        terminal.type("list\\r")

Bytes are recorded as they come. The emulation knows what prompt_toolkit and rich send,
keeps what scrolls off the top, and fails on anything else that moves the cursor.
"""

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from unicodedata import east_asian_width

from tests.cli.kit import SCV, WAIT_SECONDS, Place

ENTER, ESCAPE, CTRL_C, CTRL_D, CTRL_J = "\r", "\x1b", "\x03", "\x04", "\n"
_SEQUENCE = re.compile(
    rb"\x1b(?:\[([0-9;?]*)([A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)"
)


class Terminal:
    """Runs `scv` on a pty of a size; leaving the block ends it."""

    def __init__(
        self, place: Place, *arguments: str, columns: int = 100, rows: int = 30
    ) -> None:
        self.recorded = bytearray()
        self.columns, self.rows = columns, rows
        self._place = place
        self._arguments = arguments
        self._changed = threading.Condition()
        self._lines: list[list[str]] = [[]]  # of the screen and all that left it
        self._top = 0
        self._row = self._column = 0

    def __enter__(self) -> Self:
        self._master, slave = os.openpty()
        size = struct.pack("HHHH", self.rows, self.columns, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self._slave = slave
        self.modes = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [*SCV, *self._arguments],
            cwd=self._place.workspace,
            env=self._place.environment(),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(WAIT_SECONDS)
        os.close(self._slave)
        self._reader.join(WAIT_SECONDS)
        os.close(self._master)

    # --- a person ---

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def paste(self, text: str) -> None:
        """Paste text as terminals do that know bracketed paste."""
        assert b"\x1b[?2004h" in self.recorded, "bracketed paste is not switched on"
        self.type(f"\x1b[200~{text}\x1b[201~")

    def wait_for(self, text: str, count: int = 1) -> str:
        """Wait until the text is there so often; returns all there is to see."""
        came = self._wait(lambda: self.text.count(text) >= count)
        assert came, f"{text!r} did not come; there is:\n{self.text}"
        return self.text

    def wait_until_gone(self, text: str) -> str:
        """Wait until the text is nowhere on the screen; returns all there is to see."""
        gone = self._wait(lambda: text not in self.screen)
        assert gone, f"{text!r} stays; there is:\n{self.text}"
        return self.text

    def _wait(self, reached: Callable[[], bool]) -> bool:
        """Look at every change; give up when the program has ended, or in the end."""
        with self._changed:
            for _ in range(int(WAIT_SECONDS)):
                is_over = self.process.poll() is not None
                if self._changed.wait_for(reached, 1):
                    return True
                if is_over:
                    return False
        return False

    def wait_for_end(self) -> int:
        """Wait until the program has ended; returns its exit status."""
        return self.process.wait(WAIT_SECONDS)

    @property
    def text(self) -> str:
        """Everything to see, what scrolled away included."""
        return self._shown(0)

    @property
    def screen(self) -> str:
        """What the screen shows now."""
        return self._shown(self._top)

    def _shown(self, first: int) -> str:
        rows = ["".join(line).rstrip() for line in self._lines[first:]]
        return "\n".join(rows).rstrip("\n")

    @property
    def modes_now(self) -> list[object]:
        """The terminal's modes, to compare with `modes`."""
        return list(termios.tcgetattr(self._slave))

    # --- the emulation ---

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # EIO: nobody holds the other end any more
                data = b""
            with self._changed:
                self.recorded += data
                rest = self._draw(rest + data)
                self._changed.notify_all()
            if not data:
                return

    def _draw(self, data: bytes) -> bytes:
        """Draw what is complete; returns the rest."""
        position = 0
        while position < len(data):
            if data[position] == 0x1B:
                match = _SEQUENCE.match(data, position)
                if match is None:
                    return data[position:]
                if match[2]:
                    self._control(match[1].decode(), match[2].decode())
                position = match.end()
                continue
            end = data.find(b"\x1b", position)
            end = len(data) if end < 0 else end
            try:
                self._put(data[position:end].decode())
            except UnicodeDecodeError as error:
                self._put(data[position : position + error.start].decode())
                if error.end < end - position:
                    raise
                return data[position + error.start :]
            position = end
        return b""

    def _put(self, text: str) -> None:
        for character in text:
            if character == "\n":
                self._down()
            elif character == "\r":
                self._column = 0
            elif character == "\b":
                self._column = max(0, self._column - 1)
            elif character != "\x07":
                self._cell(character)

    def _cell(self, character: str) -> None:
        width = 2 if east_asian_width(character) in "WF" else 1
        if self._column + width > self.columns:
            self._column = 0
            self._down()
        line = self._line()
        line.extend(" " * (self._column + width - len(line)))
        line[self._column : self._column + width] = [character, *[""] * (width - 1)]
        self._column += width

    def _line(self) -> list[str]:
        number = self._top + self._row
        while len(self._lines) <= number:
            self._lines.append([])
        return self._lines[number]

    def _down(self) -> None:
        if self._row == self.rows - 1:
            self._top += 1
        else:
            self._row += 1
        self._line()

    def _control(self, parameters: str, final: str) -> None:
        first = parameters.split(";")[0]
        number = int(first) if first.isdigit() else 0
        match final:
            case "A":
                self._row = max(0, self._row - max(1, number))
            case "B":
                self._row = min(self.rows - 1, self._row + max(1, number))
            case "C":
                self._column = min(self.columns - 1, self._column + max(1, number))
            case "D":
                self._column = max(0, self._column - max(1, number))
            case "J" if number == 0:
                del self._line()[self._column :]
                del self._lines[self._top + self._row + 1 :]
            case "K" if number == 0:
                del self._line()[self._column :]
            case "m" | "h" | "l" | "q":
                pass
            case _:
                raise AssertionError(f"unexpected sequence: {parameters}{final}")
