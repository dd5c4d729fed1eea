"""`scv`: the terminal client. Full with a terminal, plain lines without one."""

import os
import signal
import sys
from typing import TYPE_CHECKING

from scv.cli.arguments import GlobalOptions, UsageError, parse, parse_risks

if TYPE_CHECKING:
    from scv.cli.terminal.conversation import Conversation
    from scv.client import Client


def run_terminal(options: GlobalOptions, arguments: list[str]) -> int:
    """Talk to SCV until the person leaves; returns the exit status."""
    parsed = parse(
        arguments, flags=["-c", "--continue", "-r", "--resume"], values=["--allow"]
    )
    if parsed.words:
        raise UsageError("scv takes no prompt here; see: scv exec --help")
    allowed = parse_risks(parsed.values.get("--allow", []))
    newest = bool(parsed.flags & {"-c", "--continue"})
    chooses = bool(parsed.flags & {"-r", "--resume"})

    from scv.cli.options import home_of
    from scv.cli.report import log_to_file
    from scv.cli.terminal.opening import choose_model

    is_full = has_terminal()
    chosen = choose_model(options, can_ask=is_full, goes_on=newest or chooses)
    if chosen is None:
        return 0
    log_to_file(home_of(chosen))
    if not is_full:
        if chooses:
            raise UsageError("-r needs a terminal; use -c, or scv exec --session ID")
        from scv.cli.terminal.lines import run_lines

        return run_lines(chosen, allowed, newest=newest)
    return run_screen(chosen, allowed, newest=newest, chooses=chooses)


def has_terminal() -> bool:
    """Tell whether there is a terminal that can move its cursor, both ways."""
    return (
        sys.stdin is not None
        and sys.stdout is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def run_screen(
    options: GlobalOptions,
    allowed: frozenset[str],
    *,
    newest: bool = False,
    chooses: bool = False,
    suggestions: tuple[str, ...] = (),
) -> int:
    """Run the full client."""
    import anyio

    async def run() -> int:
        from scv.cli.options import home_of
        from scv.cli.reach import Reached
        from scv.cli.terminal.conversation import Conversation, history_path
        from scv.cli.terminal.opening import choose_session, header
        from scv.client import connect

        server = Reached(options)
        conversation = Conversation(
            workspace=os.getcwd(),
            config=server.config,
            environment=server.environment,
            allowed=allowed,
            history_path=history_path(str(home_of(options).state)),
            suggestions=suggestions,
        )
        async with (
            server.stream() as stream,
            connect(stream, name="scv", on_approval=conversation.ask) as client,
        ):
            conversation.join(client)
            conversation.screen.show(header(options))
            if newest or chooses:
                session_id = await choose_session(client, newest=newest)
                if session_id is not None:
                    await conversation.open(session_id)
            client.spawn(conversation.tick)
            client.spawn(lambda: _watch_signals(client, conversation))
            await conversation.run()
        return 0

    return anyio.run(run)


async def _watch_signals(client: "Client", conversation: "Conversation") -> None:
    """Leave in good order when the system or the terminal says so."""
    from anyio import open_signal_receiver

    with open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        async for _ in signals:
            conversation.screen.leave()
