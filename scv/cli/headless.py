"""`scv exec`: one prompt without anybody to ask, for scripts and pipes."""

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from scv.cli.arguments import (
    RISKS,
    GlobalOptions,
    UsageError,
    parse,
    parse_risks,
)
from scv.cli.report import EXIT_FAILED, EXIT_INTERRUPTED
from scv.values import frozen

if TYPE_CHECKING:
    from scv.client import Client, FollowedSession

Json = dict[str, Any]


@frozen
class Wish:
    """What one invocation asks for."""

    prompt: str
    allowed: frozenset[str]
    as_json: bool
    session_id: str | None
    wants_running: bool = False
    """Use the home's running server, and no other."""


def run_exec(options: GlobalOptions, arguments: list[str]) -> int:
    """Run one prompt to its end; 0 only when the turn completed."""
    wish = _read(arguments)
    if wish.wants_running or wish.session_id is not None:
        from scv.cli.reach import find_running, require_running

        find = require_running if wish.wants_running else find_running
        connected = find(options)
        if connected is not None:
            from scv.cli.attached import run_attached

            return run_attached(options, wish, connected)
    import anyio

    from scv.cli.options import home_of
    from scv.cli.report import log_to_file

    log_to_file(home_of(options))
    return anyio.run(_Execution(options, wish).run)


def _read(arguments: list[str]) -> Wish:
    parsed = parse(
        arguments,
        flags=["--yes", "--json", "--attach"],
        values=["--allow", "--session"],
    )
    if len(parsed.words) != 1:
        raise UsageError(
            'exec takes one prompt: scv exec "fix the failing test", or - for stdin'
        )
    prompt = parsed.words[0]
    if prompt == "-":
        prompt = "" if sys.stdin is None else _read_stdin()
    if not prompt.strip():
        raise UsageError("the prompt is empty.")
    return Wish(
        prompt,
        frozenset(RISKS)
        if "--yes" in parsed.flags
        else parse_risks(parsed.values.get("--allow", [])),
        "--json" in parsed.flags,
        parsed.value("--session"),
        "--attach" in parsed.flags,
    )


def _read_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace")


class _Execution:
    """One run: the session, its printer, and what interrupts it."""

    def __init__(self, options: GlobalOptions, wish: Wish) -> None:
        self._options = options
        self._wish = wish
        self._client: Client
        self._session: FollowedSession | None = None
        self._turn_id: str | None = None
        self._interrupted = False

    async def run(self) -> int:
        from anyio import CancelScope

        from scv.app import in_process
        from scv.cli.options import embedded_options
        from scv.cli.output import Output
        from scv.cli.plain import PlainTurn
        from scv.client import connect

        self._out = Output(1, on_broken=self._stop)
        err = Output(os.open(os.devnull, os.O_WRONLY) if self._wish.as_json else 2)
        self._printer = PlainTurn(self._out, err)
        with CancelScope() as self._scope:
            async with (
                in_process(embedded_options(self._options)) as stream,
                connect(stream, name="scv exec", on_approval=self._answer) as client,
            ):
                self._client = client
                session = await self._open()
                client.spawn(self._watch_signals)
                turn = await self._turn(session)
                await self._out.drained()
        if self._interrupted:
            return EXIT_INTERRUPTED
        return 0 if turn["status"] == "completed" else EXIT_FAILED

    async def _turn(self, session: "FollowedSession") -> Json:
        started = await session.prompt(self._wish.prompt)
        self._turn_id = started["turnId"]
        if self._interrupted:
            self._stop()
        turn = await session.ended(self._turn_id)
        if not self._wish.as_json and not self._out.is_broken:
            self._printer.ended(turn)
        return turn

    async def _open(self) -> "FollowedSession":
        config = self._options.session_config()
        from scv.cli.json_lines import JsonLines

        is_new = self._wish.session_id is None
        show = self._printer.take
        if self._wish.as_json:
            show = JsonLines(self._out, is_new=is_new).take
        if self._wish.session_id is None:
            session = await self._client.create_session(
                os.getcwd(), config=config or None, channel="exec", on_events=show
            )
        else:
            session = await self._client.attach(self._wish.session_id, on_events=show)
            if config:
                await session.update(config=config)
        self._session = session
        return session

    async def _answer(self, approval: Json) -> Json:
        """Answer questions of our own turn as the command line says."""
        from scv.client import DEFER

        turn = self._session.mirror.turn if self._session is not None else None
        if (
            turn is None
            or turn["id"] != approval["turnId"]
            or turn.get("owner") != self._client.client_id
        ):
            return DEFER
        return self._printer.judge(approval, self._wish.allowed)

    async def _watch_signals(self) -> None:
        from anyio import open_signal_receiver

        with open_signal_receiver(
            signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        ) as signals:
            async for _ in signals:
                if self._interrupted:
                    os._exit(
                        EXIT_INTERRUPTED
                    )  # asked twice: nothing more is waited for
                self._interrupted = True
                self._stop()

    def _stop(self) -> None:
        """Cancel the turn, once there is one; its end is waited for as usual."""
        if self._turn_id is not None:
            self._client.spawn(self._cancel)

    async def _cancel(self) -> None:
        from contextlib import suppress

        from scv.errors import ScvError

        assert self._session is not None
        assert self._turn_id is not None
        with suppress(ScvError):
            await self._session.cancel(self._turn_id, "interrupted")
