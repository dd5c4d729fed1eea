"""The search index: a file of its own, made anew whenever anything is wrong with it.

It holds a copy of the searched text, in pieces, and two full-text indexes over it
that know which pieces a group of characters is in (`_words` says which groups).
They keep no places and no text, hence `detail=none` and `content=''`: a third of
the size, and the text is looked into anyway.

Source: https://www.sqlite.org/fts5.html, sections 4.3.4, 4.4.3, 4.6 and 6.2.
"""

import json
import os
from collections.abc import Callable, Iterator

from scv.core.records import Hit
from scv.errors import StoreError
from scv.store import _words
from scv.store._places import make_private_file

LAYOUT = 1
"""Of the index; another one's file is not opened but made anew."""
_BUSY_SECONDS = 10
_PIECE_BITS = 10
"""Of a piece's id, for its number in its document; more pieces are left out."""
_FEW = 200
_SCANNED_BYTES = 64 << 20
"""Text read, newest first, for words too short for an index; about 0.3 s."""
_KEPT_PAGES = 512

Before = tuple[int, str]
"""`at`, and session and item with a slash between."""


class IndexGone(Exception):
    """The file is not there."""


class Index:
    """One open index, used by one thread at a time."""

    def __init__(self, path: str) -> None:
        """Open an index.

        Raises:
            IndexGone: There is none.
            sqlite3.Error: As the database says.
        """
        import sqlite3
        from urllib.parse import quote

        if not os.path.exists(path):
            raise IndexGone(path)
        self._db = sqlite3.connect(
            f"file:{quote(path)}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=_BUSY_SECONDS,
        )
        try:
            self._db.execute("PRAGMA journal_mode=WAL").fetchone()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("SELECT 1 FROM document LIMIT 1").fetchone()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # --- writing ---

    def begin(self) -> None:
        """Begin a transaction, alone among all processes."""
        self._db.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Keep what was put, synced: what is noted nowhere else must be here."""
        self._db.execute("COMMIT")

    def roll_back(self) -> None:
        """Forget what was put since `begin`."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def put(
        self,
        session_id: str,
        item_id: str,
        at: int,
        text: str,
        is_stopped: Callable[[], bool],
    ) -> bool:
        """Index a text instead of what the item had before; none removes it.

        Returns whether it was done; False when it was stopped in the middle.
        """
        found = self._db.execute(
            "SELECT id, at FROM document WHERE session_id=? AND item_id=?",
            (session_id, item_id),
        ).fetchone()
        most = 1 << _PIECE_BITS
        parts = list(_words.pieces(_words.clean(text)))[:most] if text.strip() else []
        if found is not None:
            if found[1] == at and [t for _, t in self._pieces(found[0])] == parts:
                return True
            if not self._remove(found[0], is_stopped):
                return False
        if not parts:
            return True
        document = self._db.execute(
            "INSERT INTO document(session_id, item_id, at) VALUES(?, ?, ?)",
            (session_id, item_id, at),
        ).lastrowid
        assert document is not None
        for number, part in enumerate(parts):
            if number and is_stopped():
                return False
            self._add_piece(document << _PIECE_BITS | number, part)
        return True

    def _add_piece(self, piece: int, text: str) -> None:
        self._db.execute("INSERT INTO piece VALUES(?, ?)", (piece, text))
        folded = _words.fold(text)
        self._db.execute("INSERT INTO three(rowid, text) VALUES(?, ?)", (piece, folded))
        pairs = _words.pairs(folded)
        if pairs:
            self._db.execute(
                "INSERT INTO pair(rowid, text) VALUES(?, ?)", (piece, pairs)
            )

    def _remove(self, document: int, is_stopped: Callable[[], bool]) -> bool:
        for number, (piece, text) in enumerate(self._pieces(document)):
            if number and is_stopped():
                return False
            folded = _words.fold(text)
            self._db.execute(
                "INSERT INTO three(three, rowid, text) VALUES('delete', ?, ?)",
                (piece, folded),
            )
            pairs = _words.pairs(folded)
            if pairs:
                self._db.execute(
                    "INSERT INTO pair(pair, rowid, text) VALUES('delete', ?, ?)",
                    (piece, pairs),
                )
            self._db.execute("DELETE FROM piece WHERE id=?", (piece,))
        self._db.execute("DELETE FROM document WHERE id=?", (document,))
        return True

    def _pieces(self, document: int) -> list[tuple[int, str]]:
        first = document << _PIECE_BITS
        return self._db.execute(
            "SELECT id, text FROM piece WHERE id>=? AND id<? ORDER BY id",
            (first, first + (1 << _PIECE_BITS)),
        ).fetchall()

    def items_of(self, session_id: str) -> list[str]:
        """List what the index holds of a session."""
        rows = self._db.execute(
            "SELECT item_id FROM document WHERE session_id=?", (session_id,)
        )
        return [row[0] for row in rows]

    def shrink(self) -> None:
        """Give free pages back."""
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        if free > _KEPT_PAGES:
            self._db.executescript(f"PRAGMA incremental_vacuum({free - _KEPT_PAGES})")

    # --- searching ---

    def search(
        self, words: list[str], sessions: set[str] | None, before: Before | None
    ) -> Iterator[Hit]:
        """Find documents with every word, newest first; only of `sessions`, if any."""
        proposed = self._propose(words)
        budget = _SCANNED_BYTES if proposed is None else None
        for document, at, session_id, item_id in self._in_order(proposed, before):
            if proposed is not None and document not in proposed:
                continue
            if sessions is not None and session_id not in sessions:
                continue
            texts = [text for _, text in self._pieces(document)]
            if budget is not None:
                budget -= sum(map(len, texts))
                if budget < 0:
                    return
            shown = _look(texts, words)
            if shown is not None:
                yield Hit(session_id, item_id, shown, at)

    def _propose(self, words: list[str]) -> set[int] | None:
        """Name documents that may have every word; None when no index can tell."""
        found: set[int] | None = None
        for word in words:
            query, table = _words.gram_query(word), "three"
            if query is None:
                query, table = _words.pair_query(word), "pair"
            if query is None:
                continue
            rows = self._db.execute(
                f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (query,)
            )
            documents = {row[0] >> _PIECE_BITS for row in rows}
            found = documents if found is None else found & documents
            if not found:
                return found
        return found

    def _in_order(
        self, proposed: set[int] | None, before: Before | None
    ) -> Iterator[tuple[int, int, str, str]]:
        """Go through documents, newest first: all, or those of a few proposed."""
        conditions, values = [], list[int | str]()
        if proposed is not None and len(proposed) <= _FEW:
            conditions.append("id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(list(proposed)))
        if before is not None:
            at, place = before
            session_id, _, item_id = place.partition("/")
            conditions.append("(at, session_id, item_id)<(?, ?, ?)")
            values += [at, session_id, item_id]
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._db.execute(
            f"SELECT id, at, session_id, item_id FROM document {where}"
            " ORDER BY at DESC, session_id DESC, item_id DESC",
            values,
        )


def make_index(path: str) -> None:
    """Make an empty index.

    Raises:
        StoreError: This SQLite cannot search.
        OSError, sqlite3.Error: As the system says.
    """
    import sqlite3

    make_private_file(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_SECONDS)
    try:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("BEGIN")
        for statement in (
            "CREATE TABLE document(id INTEGER PRIMARY KEY, session_id TEXT,"
            " item_id TEXT, at INTEGER)",
            "CREATE UNIQUE INDEX document_item ON document(session_id, item_id)",
            "CREATE INDEX document_at ON document(at, session_id, item_id)",
            "CREATE TABLE piece(id INTEGER PRIMARY KEY, text TEXT)",
            "CREATE VIRTUAL TABLE three USING fts5(text, content='', detail=none,"
            " columnsize=0, tokenize='trigram case_sensitive 1')",
            # To this tokenizer every character that is not ASCII belongs to a word.
            "CREATE VIRTUAL TABLE pair USING fts5(text, content='', detail=none,"
            " columnsize=0, tokenize='ascii')",
        ):
            connection.execute(statement)
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "no such module" in str(error) or "no such tokenizer" in str(error):
            raise StoreError(
                f"cannot search: SQLite {sqlite3.sqlite_version} of this Python was"
                " built without FTS5 or is older than 3.34; use another Python build"
            ) from error
        raise
    finally:
        connection.close()


def _look(texts: list[str], words: list[str]) -> str | None:
    """Look for every word; the snippet shows the first place of the longest."""
    shown: str | None = None
    for word in words:
        for text in texts:
            place = _words.find(text, word)
            if place is not None:
                shown = shown or _words.snippet(text, *place)
                break
        else:
            return None
    return shown
