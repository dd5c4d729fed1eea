"""Rich blocks on standard output: coloured in a terminal, plain text in a pipe."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


class Paper:
    """Prints blocks; a pipe gets `columns` of width and no trailing blanks."""

    def __init__(self, *, columns: int = 100) -> None:
        from rich.console import Console

        self._is_terminal = sys.stdout.isatty()
        self._console = Console(
            width=None if self._is_terminal else columns,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def print(self, block: "RenderableType | None") -> None:
        """Write one block, if it is one."""
        if block is None:
            return
        if self._is_terminal:
            self._console.print(block)
            return
        with self._console.capture() as captured:
            self._console.print(block)
        lines = captured.get().splitlines()
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))
        sys.stdout.flush()
