"""The terminal client without a terminal: prompts in, plain text out.

Nobody can be asked here, so every question is a denial, unless `--allow` names its
risk. Piped input is one prompt; a terminal that can do nothing gives one per line.
"""

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scv.cli.arguments import GlobalOptions
from scv.cli.report import EXIT_FAILED, EXIT_INTERRUPTED
from scv.errors import ScvError

if TYPE_CHECKING:
    from scv.cli.plain import PlainTurn
    from scv.client import Client, FollowedSession

Json = dict[str, Any]


def run_lines(options: GlobalOptions, allowed: frozenset[str], *, newest: bool) -> int:
    """Run prompts from standard input; 0 when the last one completed."""
    import anyio

    return anyio.run(_Lines(options, allowed, newest=newest).run)


class _Lines:
    def __init__(
        self, options: GlobalOptions, allowed: frozenset[str], *, newest: bool
    ) -> None:
        self._options = options
        self._allowed = allowed
        self._newest = newest
        self._printer: PlainTurn
        self._session: FollowedSession
        self._turn_id: str | None = None

    async def run(self) -> int:
        from anyio import CancelScope

        from scv.cli.output import Output
        from scv.cli.plain import PlainTurn
        from scv.cli.reach import Reached
        from scv.client import connect

        self._out = Output(1, on_broken=self._reader_left)
        self._printer = PlainTurn(self._out, Output(2))
        server = Reached(self._options)
        self._config, self._environment = server.config, server.environment
        status = 0
        with CancelScope() as self._scope:
            async with (
                server.stream() as stream,
                connect(stream, name="scv", on_approval=self._answer) as client,
            ):
                self._client = client
                self._session = await self._open(client)
                client.spawn(self._watch_signals)
                while (prompt := await self._next_prompt()) is not None:
                    if prompt.strip():
                        status = await self._turn(prompt)
                    if self._out.is_broken:
                        break
                await self._out.drained()
        return EXIT_INTERRUPTED if self._scope.cancelled_caught else status

    async def _open(self, client: "Client") -> "FollowedSession":
        from scv.cli.terminal.opening import choose_session

        config = self._config
        session_id = await choose_session(client, newest=True) if self._newest else None
        if session_id is None:
            return await client.create_session(
                os.getcwd(),
                config=config or None,
                channel="terminal",
                environment=self._environment,
                on_events=self._printer.take,
            )
        session = await client.attach(
            session_id, environment=self._environment, on_events=self._printer.take
        )
        if config:
            await session.update(config=config)
        return session

    async def _next_prompt(self) -> str | None:
        """Read one line from a terminal, or all there is from anything else."""
        from anyio import to_thread

        if sys.stdin is None:
            return None
        if not sys.stdin.isatty():
            text = await to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            return text or None
        if sys.stdout is not None and sys.stdout.isatty():
            self._out.write("scv> ")
        line = await to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        return line or None

    async def _turn(self, prompt: str) -> int:
        started = await self._session.prompt(prompt)
        self._turn_id = started["turnId"]
        turn = await self._session.ended(self._turn_id)
        self._turn_id = None
        self._printer.ended(turn)
        return 0 if turn["status"] == "completed" else EXIT_FAILED

    async def _answer(self, approval: Json) -> Json:
        return self._printer.judge(approval, self._allowed)

    async def _watch_signals(self) -> None:
        """Ctrl+C cancels the turn; without one, or a second time, it ends this."""
        from anyio import open_signal_receiver

        with open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            was_asked = False
            async for number in signals:
                if self._turn_id is None or was_asked or number == signal.SIGTERM:
                    self._scope.cancel()
                was_asked = True
                await self._cancel()

    def _reader_left(self) -> None:
        self._client.spawn(self._cancel)

    async def _cancel(self) -> None:
        if self._turn_id is not None:
            with suppress(ScvError):
                await self._session.cancel(self._turn_id, "interrupted")
