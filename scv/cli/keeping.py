"""`scv sessions` beyond reading: find, copy, remove, and carry to another place."""

import os
import sys
from typing import TYPE_CHECKING

from scv.cli.arguments import GlobalOptions, UsageError
from scv.cli.embedded import with_client
from scv.cli.paper import Paper
from scv.cli.sessions import age, find_session, short_path, write_json
from scv.client.inert import inert, inert_line
from scv.errors import ScvError

if TYPE_CHECKING:
    from scv.client import Client
    from scv.wire.session import SearchHit, Session

SNIPPET_CHARACTERS = 100


def search(options: GlobalOptions, text: str, *, limit: int, as_json: bool) -> int:
    """Print the places where text was found; 1 when there is none, as grep does."""

    async def use(client: "Client") -> int:
        found = await client.search_sessions(text, limit=limit)
        hits = found["hits"]
        if as_json:
            write_json({"hits": hits})
        elif hits:
            _write_hits(hits)
        if found["nextCursor"]:
            sys.stderr.write("There may be more; see --limit.\n")
        if not hits:
            sys.stderr.write("Nothing was found.\n")
        return 0 if hits else 1

    return with_client(options, use)


def fork(
    options: GlobalOptions, session_id: str, *, at_item: str | None, title: str | None
) -> int:
    """Copy a session and print the id of the copy."""

    async def use(client: "Client") -> int:
        session = await find_session(client, session_id)
        copy = await client.fork_session(session["id"], at_item=at_item, title=title)
        sys.stdout.write(f"{copy['id']}\n")
        return 0

    return with_client(options, use)


def delete(
    options: GlobalOptions, session_id: str, *, force: bool, confirmed: bool
) -> int:
    """Remove a session, when a person or the command line says so.

    Raises:
        UsageError: Nobody is there to ask, or the id is not whole.
    """
    if not confirmed and (sys.stdin is None or not sys.stdin.isatty()):
        raise UsageError("nobody is there to ask; add --yes to delete it.")

    async def use(client: "Client") -> int:
        session = await find_session(client, session_id)
        whole_id = session["id"]
        if confirmed and whole_id != session_id:
            raise UsageError(f"with --yes the id must be whole: {whole_id}")
        if not (confirmed or await _confirm(session)):
            sys.stdout.write("Nothing was deleted.\n")
            return 1
        await client.delete_session(whole_id, force=force)
        sys.stdout.write(f"Deleted {whole_id}.\n")
        return 0

    return with_client(options, use)


def export(options: GlobalOptions, session_id: str, path: str) -> int:
    """Write a session into a new private file; a failure leaves none.

    Raises:
        ScvError: The file exists or cannot be written.
    """
    if os.path.lexists(path):
        raise ScvError(f"{inert(path)} exists; choose another name.")

    async def use(client: "Client") -> int:
        session = await find_session(client, session_id)
        data = await client.export_session(session["id"])
        try:
            _write_new(path, data)
        except OSError as error:
            raise ScvError(f"{inert(path)}: {error.strerror}.") from error
        sys.stdout.write(f"Wrote {session['id']} to {inert(path)}.\n")
        return 0

    return with_client(options, use)


def import_file(options: GlobalOptions, path: str) -> int:
    """Make a session of an exported file and print its id.

    Raises:
        ScvError: The file cannot be read, or is too large for one upload.
    """
    from scv.wire.limits import BLOB_TOTAL_BYTES

    try:
        with open(path, "rb") as file:
            data = file.read(BLOB_TOTAL_BYTES + 1)
    except OSError as error:
        raise ScvError(f"{inert(path)}: {error.strerror}.") from error
    if len(data) > BLOB_TOTAL_BYTES:
        raise ScvError(
            f"{inert(path)} is larger than an upload may be: {BLOB_TOTAL_BYTES} bytes."
        )

    async def use(client: "Client") -> int:
        session = await client.import_session(data, root=os.getcwd())
        sys.stdout.write(f"{session['id']}\n")
        return 0

    return with_client(options, use)


async def _confirm(session: "Session") -> bool:
    import anyio

    title = inert_line(session["title"], 80) or "(no prompt yet)"
    place = inert_line(short_path(session["workspace"]["root"]), 80)
    sys.stdout.write(f"{title}\n  {place}\n  {session['id']}\n")
    sys.stdout.write("Delete it for good? Type yes: ")
    sys.stdout.flush()
    await anyio.wait_readable(sys.stdin)  # a line is there; until then Ctrl+C works
    return sys.stdin.readline().strip().lower() == "yes"


def _write_new(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise


def _write_hits(hits: "list[SearchHit]") -> None:
    import time

    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("when", no_wrap=True)
    table.add_column("text", overflow="ellipsis", no_wrap=True, ratio=1)
    table.add_column("session", no_wrap=True)
    table.add_column("item", no_wrap=True)
    now = time.time() * 1000
    for hit in hits:
        snippet = inert_line(hit["snippet"], SNIPPET_CHARACTERS)
        cells = (age(now - hit["at"]), snippet, hit["sessionId"])
        table.add_row(*map(Text, (*cells, hit.get("itemId", "(title)"))))
    Paper(columns=200).print(table)
