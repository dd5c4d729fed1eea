"""The commands that typer reads: those that may take a moment to start."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

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

    as_json = _json_option()

    app = Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    sessions = Typer(help="What was said and done.", rich_markup_mode=None)
    config = Typer(help="The configuration.", rich_markup_mode=None)
    app.add_typer(sessions, name="sessions")
    approvals = Typer(help="Questions that wait.", rich_markup_mode=None)
    app.add_typer(approvals, name="approvals")
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

    _add_keeping(sessions, options)
    _add_approvals(approvals, options)

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


def _json_option() -> Any:
    from typer import Option

    return Option("--json", help="Print JSON for programs.")


def _add_keeping(sessions: "Typer", options: GlobalOptions) -> None:
    """Add the commands that find, copy, move and remove sessions."""
    from typer import Argument, Option

    known = Argument(metavar="ID", help="Id of a session, or its beginning.")

    @sessions.command("search")
    def search_sessions(
        text: Annotated[str, Argument(metavar="TEXT", help="At least one character.")],
        limit: Annotated[int, Option(min=1, max=200, help="Most to show.")] = 30,
        json: Annotated[bool, _json_option()] = False,
    ) -> int:
        """Find text in prompts, answers and titles, the newest first."""
        from scv.cli.keeping import search

        return search(options, text, limit=limit, as_json=json)

    @sessions.command("fork")
    def fork_session(
        session: Annotated[str, known],
        at: Annotated[
            str | None, Option(metavar="ITEM", help="Newest item to take along.")
        ] = None,
        title: Annotated[str | None, Option(help="Title of the copy.")] = None,
    ) -> int:
        """Copy a session and print the id of the copy; files are not changed."""
        from scv.cli.keeping import fork

        return fork(options, session, at_item=at, title=title)

    @sessions.command("delete")
    def delete_session(
        session: Annotated[str, known],
        force: Annotated[
            bool, Option("--force", help="Also while a turn runs: cancel it.")
        ] = False,
        yes: Annotated[
            bool, Option("--yes", help="Do not ask; the id must be whole.")
        ] = False,
    ) -> int:
        """Remove a session for good; files of the project stay."""
        from scv.cli.keeping import delete

        return delete(options, session, force=force, confirmed=yes)

    @sessions.command("export")
    def export_session(
        session: Annotated[str, known],
        file: Annotated[str, Argument(metavar="FILE", help="A new file.")],
    ) -> int:
        """Write a session into a new file that only you can read."""
        from scv.cli.keeping import export

        return export(options, session, file)

    @sessions.command("import")
    def import_session(
        file: Annotated[str, Argument(metavar="FILE", help="An exported session.")],
    ) -> int:
        """Make a session of an exported file and print its id."""
        from scv.cli.keeping import import_file

        return import_file(options, file)


def _add_approvals(approvals: "Typer", options: GlobalOptions) -> None:
    """Add the commands that see and answer questions of the running server."""
    from typer import Argument, Option

    @approvals.command("list")
    def list_approvals(json: Annotated[bool, _json_option()] = False) -> int:
        """Show every question that waits, with the whole of what would run."""
        from scv.cli.approvals import show_list

        return show_list(options, as_json=json)

    @approvals.command("answer")
    def answer_approval(
        approval: Annotated[
            str, Argument(metavar="ID", help="Whole id of a question.")
        ],
        decision: Annotated[str, Argument(metavar="allow|deny")],
        feedback: Annotated[str, Option(help="Why; the model reads it.")] = "",
    ) -> int:
        """Show a question and decide it."""
        from scv.cli.approvals import answer

        return answer(options, approval, decision, feedback=feedback)
