"""The search index: a file of its own, made anew whenever anything is wrong with it.

It holds a copy of the searched text, in pieces, and two full-text indexes over it
that know which pieces a group of characters is in (`_words` says which groups).
They keep no places and no text, hence `detail=none` and `content=''`: a third of
the size, and the text is looked into anyway. Rows are found in them by numbers that
are cheap to keep only when they are close together, so a document has the number of
its first piece, and nearly every document has just that one.

Source: https://www.sqlite.org/fts5.html, sections 4.3.4, 4.4.3, 4.6 and 6.2.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator

from scv.core.records import Hit
from scv.errors import StoreError
from scv.store import _words
from scv.store._places import make_private_file

LAYOUT = 1
"""Of the index; another one's file is not opened but made anew."""
_BUSY_SECONDS = 30
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
            "SELECT id, last, at FROM document WHERE session_id=? AND item_id=?",
            (session_id, item_id),
        ).fetchone()
        parts = list(_words.pieces(_words.clean(text))) if text.strip() else []
        if found is not None:
            first, last, known = found
            if known == at and self._texts(first, last) == parts:
                return True
            if not self._remove(first, last, is_stopped):
                return False
        if not parts:
            return True
        (first,) = self._db.execute(
            "SELECT coalesce(max(id), 0) + 1 FROM piece"
        ).fetchone()
        self._db.execute(
            "INSERT INTO document VALUES(?, ?, ?, ?, ?)",
            (first, first + len(parts) - 1, at, session_id, item_id),
        )
        for piece, part in enumerate(parts, first):
            if piece > first and is_stopped():
                return False
            self._add_piece(piece, part)
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

    def _remove(self, first: int, last: int, is_stopped: Callable[[], bool]) -> bool:
        for piece, text in enumerate(self._texts(first, last), first):
            if piece > first and is_stopped():
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
        self._db.execute("DELETE FROM document WHERE id=?", (first,))
        return True

    def _texts(self, first: int, last: int) -> list[str]:
        rows = self._db.execute(
            "SELECT text FROM piece WHERE id BETWEEN ? AND ? ORDER BY id", (first, last)
        )
        return [row[0] for row in rows]

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
        for first, last, at, session_id, item_id in self._in_order(proposed, before):
            if proposed is not None and first not in proposed:
                continue
            if sessions is not None and session_id not in sessions:
                continue
            texts = self._texts(first, last)
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
        document_of: dict[int, int] | None = None
        for word in words:
            query, table = _words.gram_query(word), "three"
            if query is None:
                query, table = _words.pair_query(word), "pair"
            if query is None:
                continue
            rows = self._db.execute(
                f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (query,)
            )
            if document_of is None:
                document_of = self._documents_of_later_pieces()
            documents = {document_of.get(row[0], row[0]) for row in rows}
            found = documents if found is None else found & documents
            if not found:
                return found
        return found

    def _documents_of_later_pieces(self) -> dict[int, int]:
        rows = self._db.execute("SELECT id, last FROM document WHERE last>id")
        return {
            piece: first for first, last in rows for piece in range(first + 1, last + 1)
        }

    def _in_order(
        self, proposed: set[int] | None, before: Before | None
    ) -> Iterator[tuple[int, int, int, str, str]]:
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
            f"SELECT id, last, at, session_id, item_id FROM document {where}"
            " ORDER BY at DESC, session_id DESC, item_id DESC",
            values,
        )


def make_index(path: str) -> None:
    """Make an empty index.

    Raises:
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
            "CREATE TABLE document(id INTEGER PRIMARY KEY, last INTEGER, at INTEGER,"
            " session_id TEXT, item_id TEXT)",
            "CREATE UNIQUE INDEX document_item ON document(session_id, item_id)",
            "CREATE INDEX document_at ON document(at, session_id, item_id, last)",
            "CREATE INDEX document_long ON document(id, last) WHERE last > id",
            "CREATE TABLE piece(id INTEGER PRIMARY KEY, text TEXT)",
            "CREATE VIRTUAL TABLE three USING fts5(text, content='', detail=none,"
            " columnsize=0, tokenize='trigram case_sensitive 1')",
            # To this tokenizer every character that is not ASCII belongs to a word.
            "CREATE VIRTUAL TABLE pair USING fts5(text, content='', detail=none,"
            " columnsize=0, tokenize='ascii')",
            # Four times as many parts wait to be merged as usual: a third less work to
            # index, and 1 ms more to search.
            "INSERT INTO three(three, rank) VALUES('automerge', 16)",
        ):
            connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        connection.close()


@contextlib.contextmanager
def can_search() -> Iterator[None]:
    """Turn the error of a SQLite without full-text search into ours.

    Raises:
        StoreError: Says what to do.
    """
    import sqlite3

    try:
        yield
    except sqlite3.OperationalError as error:
        if "no such module" in str(error) or "no such tokenizer" in str(error):
            raise StoreError(
                f"cannot search: SQLite {sqlite3.sqlite_version} of this Python was"
                " built without FTS5 or is older than 3.34; use another Python build"
            ) from error
        raise


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
