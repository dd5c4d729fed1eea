"""Notes in `unindexed`: what the search index must look at again.

A note says nothing but "look": whatever stands in the tables then is indexed, or
removed from the index when nothing does. So a note too many costs a look, and the
tables never wait for the index. Its mark changes with every new note, so that
whoever has looked removes no note that came after. A note has its mark before it is
written, because what the disk refuses is written again.
"""

from itertools import count
from secrets import randbits
from typing import TYPE_CHECKING

from scv.core.records import ItemRecord, ItemsCut
from scv.store._rows import OPEN_STATUSES, Statement, Values
from scv.store._schema import ITEM, SESSION

if TYPE_CHECKING:
    import sqlite3

TITLE = ""
"""In place of an item's id: the session's title."""
WHOLE = "*"
"""In place of an item's id: everything of the session."""
SEARCHED_KINDS = frozenset({"user_message", "assistant_message"})

NOTE_SESSION = f"INSERT OR REPLACE INTO unindexed VALUES(?, '{WHOLE}', random())"
_NOTE_AFTER = (
    "INSERT OR REPLACE INTO unindexed"
    " SELECT session_id, id, ?3 FROM item WHERE session_id=?1 AND seq>?2"
)
_NOTE = "INSERT OR REPLACE INTO unindexed VALUES(?, ?, ?)"
_NOTE_ITEMS = (
    "INSERT OR REPLACE INTO unindexed"
    " SELECT session_id, id, ?2 FROM item WHERE session_id=?1 AND open=0 AND ("
    + " OR ".join(
        # The beginning of the record, before anything that somebody wrote.
        f'instr(substr(body, 1, 400), CAST(\'"kind":"{kind}"\' AS BLOB))'
        for kind in sorted(SEARCHED_KINDS)
    )
    + ")"
)
_LOOKED = "DELETE FROM unindexed WHERE session_id=? AND item_id=? AND mark=?"
_NAME_INDEX = (
    "INSERT INTO meta VALUES('index', ?1)"
    " ON CONFLICT(key) DO UPDATE SET value=?1 WHERE value IS ?2"
)
_NOTE_ALL = (
    f"INSERT OR REPLACE INTO unindexed SELECT id, '{WHOLE}', ?2 FROM session"
    " WHERE EXISTS(SELECT 1 FROM meta WHERE key='index' AND value=?1)"
)
_marks = count(randbits(61))

Note = tuple[str, str, int]
"""Session, item (or `TITLE`, `WHOLE`), mark."""


def note(session_id: str, item_id: str) -> Statement:
    """Note an item or a title."""
    return Statement(_NOTE, (session_id, item_id, next(_marks)))


def wants_note(item: ItemRecord) -> bool:
    """Tell whether an item holds text to find, and will not change any more."""
    status = item.body.get("status")
    return item.kind in SEARCHED_KINDS and status not in OPEN_STATUSES


def looked(notes: list[Note]) -> tuple[Statement, ...]:
    """Remove notes, unless newer ones took their place."""
    return tuple(Statement(_LOOKED, each) for each in notes)


def note_items(session_id: str) -> Statement:
    """Note each item of a session that may hold text to find."""
    return Statement(_NOTE_ITEMS, (session_id, next(_marks)))


def note_after(cut: ItemsCut) -> Statement:
    """Note each item that a cut will remove."""
    return Statement(_NOTE_AFTER, (cut.session_id, cut.seq, next(_marks)))


def name_index(name: str, instead_of: str | None) -> tuple[Statement, ...]:
    """Use another, empty index from now on, if the one in use is `instead_of`."""
    return (
        Statement(_NAME_INDEX, (name, instead_of)),
        Statement(_NOTE_ALL, (name, next(_marks))),
    )


def index_name(db: "sqlite3.Connection") -> str | None:
    """Name the index in use."""
    found = db.execute("SELECT value FROM meta WHERE key='index'").fetchone()
    return None if found is None else str(found[0])


def waits(db: "sqlite3.Connection") -> bool:
    """Tell whether there are notes."""
    return db.execute("SELECT 1 FROM unindexed LIMIT 1").fetchone() is not None


def read_notes(
    db: "sqlite3.Connection", session_id: str | None, most: int, limit_bytes: int
) -> list[tuple[Note, Values | None]]:
    """Read some notes, each with its item's or session's row as it is now."""
    where = "" if session_id is None else "WHERE session_id=? "
    values = (most,) if session_id is None else (session_id, most)
    found: list[tuple[Note, Values | None]] = []
    size = 0
    for each in db.execute(f"SELECT * FROM unindexed {where}LIMIT ?", values):
        row = None if each[1] == WHOLE else _row(db, each[0], each[1])
        found.append((each, row))
        size += 0 if row is None else len(row[-2])
        if size > limit_bytes:
            break
    return found


def _row(db: "sqlite3.Connection", session_id: str, item_id: str) -> Values | None:
    if item_id == TITLE:
        query = f"SELECT {','.join(SESSION.columns)} FROM session WHERE id=?"
        row: Values | None = db.execute(query, (session_id,)).fetchone()
    else:
        row = db.execute(
            f"SELECT {','.join(ITEM.columns)} FROM item WHERE session_id=? AND id=?",
            (session_id, item_id),
        ).fetchone()
    return row
