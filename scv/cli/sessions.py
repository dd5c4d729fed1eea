"""`scv sessions`: what is kept of earlier work."""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from scv.cli.arguments import GlobalOptions
from scv.cli.embedded import with_client
from scv.cli.paper import Paper
from scv.client.inert import inert_line
from scv.errors import ScvError

if TYPE_CHECKING:
    from scv.client import Client
    from scv.wire.session import Session

Json = dict[str, Any]

PAGE = 200


def show_list(options: GlobalOptions, *, here: bool, limit: int, as_json: bool) -> int:
    """Print the newest sessions."""

    async def use(client: "Client") -> int:
        workspace = os.getcwd() if here else None
        page = await client.list_sessions(workspace=workspace, limit=limit)
        if as_json:
            write_json({"sessions": page["sessions"]})
        elif page["sessions"]:
            _write_table(page["sessions"])
        else:
            sys.stdout.write("No sessions yet. Start one with: scv\n")
        return 0

    return with_client(options, use)


def show_transcript(
    options: GlobalOptions, session_id: str | None, *, as_json: bool
) -> int:
    """Print the items of a session, the newest of this directory without an id."""

    async def use(client: "Client") -> int:
        session = await find_session(client, session_id)
        items = await _all_items(client, session["id"])
        if as_json:
            write_json({"session": session, "items": items})
        else:
            _write_items(session, items)
        return 0

    return with_client(options, use)


async def find_session(client: "Client", wanted: str | None) -> "Session":
    """Find a session by id or the beginning of one.

    Raises:
        ScvError: There is none, or more than one.
    """
    if wanted == "":  # a script's empty variable is not the beginning of every id
        raise ScvError("an empty id names no session.")
    here = os.getcwd() if wanted is None else None
    limit = 1 if wanted is None else PAGE
    page = await client.list_sessions(workspace=here, limit=limit)
    found = [each for each in page["sessions"] if each["id"].startswith(wanted or "")]
    exact = [each for each in found if each["id"] == wanted]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if found:
        raise ScvError(
            f"{len(found)} sessions begin with {wanted}; give more of the id."
        )
    if wanted is None:
        raise ScvError("no session was started in this directory yet.")
    return (await client.get_session(wanted))["session"]


async def _all_items(client: "Client", session_id: str) -> list[Json]:
    items: list[Json] = []
    before: str | None = None
    while True:
        page = await client.history(session_id, before=before, limit=PAGE)
        items = page["items"] + items
        before = page["prev"]
        if before is None:
            return items


def write_json(value: Any) -> None:
    import json

    sys.stdout.write(f"{json.dumps(value, indent=2)}\n")


def session_rows(sessions: "list[Session]") -> list[tuple[str, str, str]]:
    """Describe sessions for a list: when, state, title."""
    now = time.time() * 1000
    return [
        (
            age(now - each["updatedAt"]),
            each["state"].replace("_", " "),
            inert_line(each["title"], 80) or "(no prompt yet)",
        )
        for each in sessions
    ]


def age(milliseconds: float) -> str:
    """Say how long ago something was, in one unit."""
    seconds = max(0, int(milliseconds / 1000))
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        count = seconds // size
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def short_path(path: str, limit: int = 200) -> str:
    """Write the home directory as `~`, and of a long path the end."""
    home = os.path.expanduser("~")
    if path == home or path.startswith(home + os.sep):
        path = "~" + path[len(home) :]
    return path if len(path) <= limit else f"…{path[1 - limit :]}"


def _write_table(sessions: "list[Session]") -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("when", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("title", overflow="ellipsis", no_wrap=True, ratio=2)
    table.add_column("directory", overflow="ellipsis", no_wrap=True, ratio=1)
    table.add_column("id", no_wrap=True)
    for session, (when, state, title) in zip(
        sessions, session_rows(sessions), strict=True
    ):
        directory = inert_line(short_path(session["workspace"]["root"]), 200)
        cells = (when, state, title, directory, session["id"])
        table.add_row(*(Text(cell) for cell in cells))
    Paper(columns=200).print(table)


def _write_items(session: "Session", items: list[Json]) -> None:
    from scv.cli.terminal.blocks import item_block, quiet_block

    out = Paper()
    root = short_path(session["workspace"]["root"])
    state = session["state"].replace("_", " ")
    out.print(quiet_block(f"{session['id']} · {root} · {state}"))
    for item in items:
        out.print(item_block(item))
