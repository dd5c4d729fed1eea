"""The commands that typer reads: those that may take a moment to start."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from scv.cli.arguments import GlobalOptions, UsageError

if TYPE_CHECKING:
    from typer import Typer


def run_command(options: GlobalOptions, arguments: Sequence[str]) -> int:
    """Run one command and return its exit status.

    Raises:
        UsageError: There is no such command, or its own arguments are wrong.
    """
    try:
        status = _build(options)(
            args=list(arguments), prog_name="scv", standalone_mode=False
        )
    except Exception as error:
        told = getattr(error, "format_message", None)  # typer's errors, all usage
        if told is None:
            raise
        raise UsageError(f"{told()} See: scv --help") from None
    return status if isinstance(status, int) else 0


def _build(options: GlobalOptions) -> "Typer":
    from typer import Argument, Option, Typer

    as_json = Option("--json", help="Print JSON for programs.")

    app = Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    sessions = Typer(help="What was said and done.", rich_markup_mode=None)
    config = Typer(help="The configuration.", rich_markup_mode=None)
    app.add_typer(sessions, name="sessions")
    app.add_typer(config, name="config")

    @sessions.command("list")
    def list_sessions(
        here: Annotated[
            bool, Option("--here", help="Only those of the current directory.")
        ] = False,
        limit: Annotated[int, Option(min=1, max=200, help="Most to show.")] = 30,
        json: Annotated[bool, as_json] = False,
    ) -> int:
        """List sessions, the most recently used first."""
        from scv.cli.sessions import show_list

        return show_list(options, here=here, limit=limit, as_json=json)

    @sessions.command("show")
    def show_session(
        session: Annotated[
            str | None,
            Argument(
                metavar="[ID]",
                help="Id or its beginning; the newest of this directory if absent.",
            ),
        ] = None,
        json: Annotated[bool, as_json] = False,
    ) -> int:
        """Show what was said and done in a session."""
        from scv.cli.sessions import show_transcript

        return show_transcript(options, session, as_json=json)

    @config.command("show")
    def show_config() -> int:
        """Show every setting with the layer its value comes from; no secrets."""
        from scv.cli.configuration import show

        return show(options)

    @config.command("path")
    def show_path() -> int:
        """Show where the configuration file belongs."""
        from scv.cli.configuration import show_path

        return show_path(options)

    @app.command()
    def schema() -> int:
        """Print the protocol as JSON Schema."""
        from importlib.resources import files

        sys.stdout.write(files("scv.wire").joinpath("schema.json").read_text("utf-8"))
        return 0

    @app.command()
    def demo() -> int:
        """Find and fix a bug in a small project, in a temporary directory.

        Needs no model and no key: SCV's practice model does the talking. In a
        terminal you answer its questions; without one the demo answers them itself.
        """
        from scv.cli.demo import run_demo

        return run_demo()

    @app.command()
    def uninstall(
        purge: Annotated[
            bool,
            Option("--purge", help="Delete sessions and configuration, too."),
        ] = False,
        yes: Annotated[
            bool, Option("--yes", help="Do not ask before deleting.")
        ] = False,
    ) -> int:
        """Say how to remove SCV; with --purge, delete what it keeps."""
        from scv.cli.uninstall import uninstall as run

        return run(options, purge=purge, confirmed=yes)

    return app
