"""The screen: an input line below, finished blocks above in the terminal's scrollback.

prompt_toolkit draws the lower part (running text, question, input, status) and takes
the keys; what is finished is written above it once and never touched again. A
question takes the keyboard only after a moment without any key, so that a letter of
a half-written prompt never answers it.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scv.cli.terminal.live import tail_lines
from scv.values import frozen

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.layout import Layout
    from prompt_toolkit.output import Output
    from rich.console import Console, RenderableType

QUIET_SECONDS = 0.5
INPUT_ROWS = 8


@frozen
class Handlers:
    """What the keys do.

    `submit` returns whether it took the text. `choose` gets the key of an armed
    question, for `d` with the reason that was typed.
    """

    submit: Callable[[str], bool]
    interrupt: Callable[[str], None]
    choose: Callable[[str, str], None]


class Screen:
    """One terminal; `run` until `leave`."""

    def __init__(self, handlers: Handlers, *, history_path: str, label: str) -> None:
        from prompt_toolkit.buffer import Buffer
        from prompt_toolkit.history import FileHistory

        self.running_text = ""
        self.status: Callable[[], tuple[str, str]] = lambda: ("", "")
        self.question = ""
        self._handlers = handlers
        self._label = label
        self._is_armed = False
        self._asks_reason = False
        self._arming: asyncio.TimerHandle | None = None
        self._last_key = 0.0
        self._input = Buffer(multiline=True, history=FileHistory(history_path))
        self._reason = Buffer(multiline=False)
        self._app = self._build()

    # --- for the conversation ---

    async def run(self) -> None:
        """Show the screen and take keys until `leave`."""
        await self._app.run_async(set_exception_handler=False, handle_sigint=False)

    def leave(self) -> None:
        """End `run`."""
        if self._app.is_running:
            self._app.exit()

    def refresh(self) -> None:
        """Draw the lower part again, soon."""
        self._app.invalidate()

    def show(self, *blocks: "RenderableType | None") -> None:
        """Write finished blocks into the scrollback."""
        text = "".join(self._render(block) for block in blocks if block is not None)
        if not text:
            return
        if not self._app.is_running:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        self._app.renderer.erase()
        self._app.output.write_raw(text)
        self._app.output.flush()
        self._app.invalidate()

    def ask(self, text: str) -> None:
        """Show a question line; its keys work after a moment without keys."""
        self.question = text
        self._arm()

    def unask(self) -> None:
        """Take the question away; what was typed before is still there."""
        self.question = ""
        self._is_armed = False
        self._leave_reason()

    def suggest(self, text: str) -> None:
        """Put a prompt into the empty input line."""
        if not self._input.text:
            self._input.text = text
            self._input.cursor_position = len(text)

    # --- drawing ---

    def _render(self, block: "RenderableType") -> str:
        from io import StringIO

        console = self._console(StringIO())
        console.print(block)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        return str(text)

    def _console(self, file: Any) -> "Console":
        from rich.console import Console

        outer = Console()
        return Console(
            file=file,
            width=max(20, _size()[0]),
            force_terminal=True,
            color_system=outer.color_system,  # type: ignore[arg-type]
            no_color=outer.no_color,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def _build(self) -> "Application[None]":
        from prompt_toolkit.application import Application
        from prompt_toolkit.styles import Style

        style = Style(
            [
                ("label", "bold ansicyan"),
                ("running", "ansibrightblack"),
                ("question", "bold ansiyellow"),
                ("line", "ansibrightblack"),
                ("status", "ansibrightblack"),
            ]
        )
        app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=self._keys(),
            style=style,
            full_screen=False,
            erase_when_done=True,
            min_redraw_interval=0.03,
            output=_output(),
        )
        app.ttimeoutlen = 0.05  # a lone Esc is Esc, not the start of a sequence
        app.key_processor.before_key_press += self._key_pressed
        return app

    def _layout(self) -> "Layout":
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.layout import (
            BufferControl,
            ConditionalContainer,
            Dimension,
            FormattedTextControl,
            HSplit,
            Layout,
            Window,
        )
        from prompt_toolkit.layout.processors import BeforeInput

        def text_window(
            get: Callable[[], "StyleAndTextTuples"], **options: Any
        ) -> Window:
            return Window(FormattedTextControl(get), dont_extend_height=True, **options)

        asks = Condition(lambda: bool(self.question))
        asks_reason = Condition(lambda: self._asks_reason)
        runs = Condition(lambda: bool(self.running_text))
        self._input_control = BufferControl(
            self._input,
            input_processors=[BeforeInput(f"{self._label}> ", style="class:label")],
        )
        self._reason_control = BufferControl(
            self._reason, input_processors=[BeforeInput("because: ", "class:question")]
        )
        rows = Dimension(min=1, max=INPUT_ROWS)
        return Layout(
            HSplit(
                [
                    ConditionalContainer(text_window(self._running), runs),
                    ConditionalContainer(
                        text_window(self._question, wrap_lines=True), asks
                    ),
                    ConditionalContainer(
                        Window(self._reason_control, height=1), asks_reason
                    ),
                    Window(height=1, char="─", style="class:line"),
                    Window(
                        self._input_control,
                        wrap_lines=True,
                        height=rows,
                        dont_extend_height=True,
                    ),
                    text_window(self._status, height=1),
                ]
            ),
            focused_element=self._input_control,
        )

    def _running(self) -> "StyleAndTextTuples":
        columns, rows = _size()
        height = max(1, min(rows // 2, rows - INPUT_ROWS))
        lines = tail_lines(self.running_text, columns, height)
        return [("class:running", "\n".join(lines))]

    def _question(self) -> "StyleAndTextTuples":
        if self._asks_reason:
            return [("class:question", "Why? Enter denies and says so, Esc goes back.")]
        return [("class:question", self.question if self._is_armed else "…")]

    def _status(self) -> "StyleAndTextTuples":
        left, right = self.status()
        room = _size()[0] - len(left) - 1
        line = f"{left}{right:>{room}}" if len(right) < room else left
        return [("class:status", line[: _size()[0]])]

    # --- keys ---

    def _key_pressed(self, _: object) -> None:
        if not self._app.is_running:
            return
        self._last_key = asyncio.get_running_loop().time()

    def _arm(self) -> None:
        """Let the question take keys once the keyboard was quiet for a moment."""
        self._is_armed = False
        if self._arming is not None:
            self._arming.cancel()
        loop = asyncio.get_running_loop()
        due = self._last_key + QUIET_SECONDS
        if not self.question:
            return
        if loop.time() >= due:
            self._is_armed = True
            self.refresh()
        else:
            self._arming = loop.call_at(due, self._arm)

    def _leave_reason(self) -> None:
        if self._asks_reason:
            self._asks_reason = False
            self._reason.reset()
            self._app.layout.focus(self._input_control)
        self.refresh()

    def _keys(self) -> "KeyBindings":
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.keys import Keys

        keys = KeyBindings()
        reason = Condition(lambda: self._asks_reason)
        armed = Condition(lambda: self._is_armed) & ~reason
        writing = ~reason & ~armed

        @keys.add("enter", filter=writing)
        def _submit(event: "KeyPressEvent") -> None:
            if self._input.text.strip() and self._handlers.submit(self._input.text):
                self._input.reset(append_to_history=True)

        @keys.add("c-j", filter=writing)
        def _new_line(event: "KeyPressEvent") -> None:
            self._input.insert_text("\n")

        @keys.add("escape", eager=True, filter=~reason)
        def _escape(event: "KeyPressEvent") -> None:
            self._handlers.interrupt("escape")

        @keys.add("c-c", eager=True)
        def _interrupt(event: "KeyPressEvent") -> None:
            if self._input.text and not self.question:
                self._input.reset()
            self._handlers.interrupt("c-c")

        @keys.add("c-d", filter=writing & Condition(lambda: not self._input.text))
        def _end(event: "KeyPressEvent") -> None:
            self._handlers.interrupt("c-d")

        @keys.add(Keys.Any, filter=armed, eager=True)
        def _choose(event: "KeyPressEvent") -> None:
            key = event.data.lower()
            if key == "d":
                self._asks_reason = True
                self._app.layout.focus(self._reason_control)
            elif key in ("y", "n", "s", "v"):
                self._handlers.choose(key, "")

        @keys.add("enter", filter=armed, eager=True)
        @keys.add("c-j", filter=armed, eager=True)
        @keys.add(Keys.BracketedPaste, filter=armed, eager=True)
        def _ignore(event: "KeyPressEvent") -> None:
            """Answer nothing: only the letters on the screen do."""

        @keys.add("enter", filter=reason, eager=True)
        def _give_reason(event: "KeyPressEvent") -> None:
            text = self._reason.text
            self._leave_reason()
            self._handlers.choose("d", text)

        @keys.add("escape", filter=reason, eager=True)
        def _back(event: "KeyPressEvent") -> None:
            self._leave_reason()

        return keys


def _size() -> tuple[int, int]:
    """Return columns and rows of the terminal."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return size.columns or 80, size.lines or 24


def _output() -> "Output":
    """Write to the terminal without ever asking it where the cursor is."""
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.output import ColorDepth
    from prompt_toolkit.output.vt100 import Vt100_Output

    return Vt100_Output(
        sys.stdout,
        lambda: Size(columns=_size()[0], rows=_size()[1]),
        term=os.environ.get("TERM"),
        default_color_depth=ColorDepth.from_env(),
        enable_cpr=False,
    )
