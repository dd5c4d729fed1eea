"""Tables of `sessions.db` and how an older file becomes a current one.

Every table but `meta` and `unindexed` has the same form: key columns, columns to
find rows by, then the record itself (`body`) and a checksum over all of it. Columns
only find rows; the record is read from the body. There are no rowids, so a table is
one tree whose pages hold whole rows, which is what makes salvage possible.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

FILE_NAME = "sessions.db"
SALVAGED = f"{FILE_NAME}.salvaged-"
"""Beginning of the name of a whole new file that waits to take the place."""
PAGE_BYTES = 4096
"""Fixed, because salvage must know it when the file's header is gone."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of records; the first `keys` columns are its primary key."""

    name: str
    columns: tuple[str, ...]
    keys: int
    upsert: str = field(init=False)

    def __post_init__(self) -> None:
        names, marks = ",".join(self.columns), ",".join("?" * len(self.columns))
        key = ",".join(self.columns[: self.keys])
        new = ",".join(f"{name}=excluded.{name}" for name in self.columns[self.keys :])
        sql = (
            f"INSERT INTO {self.name}({names}) VALUES({marks})"
            f" ON CONFLICT({key}) DO UPDATE SET {new}"
        )
        object.__setattr__(self, "upsert", sql)


def _table(name: str, keys: str, found_by: str) -> Table:
    columns = (*keys.split(), *found_by.split(), "body", "crc")
    return Table(name, columns, len(keys.split()))


SESSION = _table("session", "id", "updated_at root archived")
TURN = _table("turn", "session_id id", "started_at ended")
ITEM = _table("item", "session_id seq id", "open")
EVENT = _table("event", "session_id epoch first", "last type item_id")
HISTORY = _table("history", "session_id position", "turn_id")
APPROVAL = _table("approval", "id", "session_id created_at state")
OPERATION = _table("operation", "client_id op_id", "at")
BLOB = _table("blob", "id session_id", "sha256 size")
QUEUE = _table("queue", "session_id", "")
AUDIT = _table("audit", "at id", "session_id")
TABLES = (
    *(SESSION, TURN, ITEM, EVENT, HISTORY, APPROVAL, OPERATION, BLOB),
    *(QUEUE, AUDIT),
)
OF_A_SESSION = (TURN, ITEM, EVENT, HISTORY, APPROVAL, BLOB, QUEUE)
"""Tables whose rows go with their session; the audit outlives it."""


def _make_version_1(connection: "sqlite3.Connection") -> None:
    for statement in (
        "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID",
        "CREATE TABLE session(id TEXT, updated_at INTEGER, root BLOB,"
        " archived INTEGER, body BLOB, crc INTEGER, PRIMARY KEY(id)) WITHOUT ROWID",
        "CREATE INDEX session_updated ON session(updated_at)",
        "CREATE TABLE turn(session_id TEXT, id TEXT, started_at INTEGER,"
        " ended INTEGER, body BLOB, crc INTEGER,"
        " PRIMARY KEY(session_id, id)) WITHOUT ROWID",
        "CREATE INDEX turn_open ON turn(session_id) WHERE ended = 0",
        "CREATE TABLE item(session_id TEXT, seq INTEGER, id TEXT, open INTEGER,"
        " body BLOB, crc INTEGER, PRIMARY KEY(session_id, seq, id)) WITHOUT ROWID",
        "CREATE INDEX item_id ON item(session_id, id)",
        "CREATE INDEX item_open ON item(session_id) WHERE open = 1",
        "CREATE TABLE event(session_id TEXT, epoch TEXT, first INTEGER,"
        " last INTEGER, type TEXT, item_id TEXT, body BLOB, crc INTEGER,"
        " PRIMARY KEY(session_id, epoch, first)) WITHOUT ROWID",
        "CREATE TABLE history(session_id TEXT, position INTEGER, turn_id TEXT,"
        " body BLOB, crc INTEGER, PRIMARY KEY(session_id, position)) WITHOUT ROWID",
        "CREATE TABLE approval(id TEXT, session_id TEXT, created_at INTEGER,"
        " state TEXT, body BLOB, crc INTEGER, PRIMARY KEY(id)) WITHOUT ROWID",
        "CREATE INDEX approval_pending ON approval(created_at) WHERE state = 'pending'",
        "CREATE TABLE operation(client_id TEXT, op_id TEXT, at INTEGER, body BLOB,"
        " crc INTEGER, PRIMARY KEY(client_id, op_id)) WITHOUT ROWID",
        "CREATE TABLE blob(id TEXT, session_id TEXT, sha256 TEXT, size INTEGER,"
        " body BLOB, crc INTEGER, PRIMARY KEY(id, session_id)) WITHOUT ROWID",
    ):
        connection.execute(statement)


def _make_version_2(connection: "sqlite3.Connection") -> None:
    for statement in (
        "CREATE TABLE queue(session_id TEXT, body BLOB, crc INTEGER,"
        " PRIMARY KEY(session_id)) WITHOUT ROWID",
        "CREATE TABLE audit(at INTEGER, id TEXT, session_id TEXT, body BLOB,"
        " crc INTEGER, PRIMARY KEY(at, id)) WITHOUT ROWID",
        "CREATE INDEX audit_session ON audit(session_id)",
        "CREATE INDEX approval_session ON approval(session_id)",
        "CREATE INDEX blob_session ON blob(session_id)",
        "CREATE INDEX blob_file ON blob(sha256)",
        # What the search index has not seen, see `_indexer`.
        "CREATE TABLE unindexed(session_id TEXT, item_id TEXT, mark INTEGER,"
        " PRIMARY KEY(session_id, item_id)) WITHOUT ROWID",
    ):
        connection.execute(statement)


Migration = Callable[["sqlite3.Connection"], None]
MIGRATIONS: tuple[Migration, ...] = (_make_version_1, _make_version_2)
"""Number n makes version n+1 out of version n; never changed once released."""


def lay_out(connection: "sqlite3.Connection") -> None:
    """Fix the form of a file's pages; it has no table yet.

    Its free pages can be given back a few at a time.
    """
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")


def version(connection: "sqlite3.Connection") -> int:
    """Read the file's schema version; 0 for a file that was just made."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(
    connection: "sqlite3.Connection", migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Bring the file to the newest version; each step is one synced transaction.

    The caller holds the store exclusively. A step that raises leaves the
    version before it.
    """
    connection.execute("PRAGMA synchronous=FULL")
    for number in range(version(connection), len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            migrations[number](connection)
            connection.execute(f"PRAGMA user_version={number + 1}")
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES('version', ?)", (number + 1,)
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
