"""Keeps the search index up with the tables, and searches.

Theory of operation. A commit that completes a message notes it (`_notes`). In a
quiet moment, or before a search, the notes are looked at on a thread of their own,
so that no commit waits for the index, which is a file of its own. What was indexed
is synced before its notes go: a crash leaves notes for what is indexed already,
never the other way round.

The tables name the index in use. When that file is gone or damaged, or of another
layout, a new, empty one with a new name takes its place in the transaction that
notes all sessions; nobody writes to a file that somebody else made anew.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

from scv.core.records import Hit, ItemRecord
from scv.errors import NotFound, StoreError
from scv.store import _notes, _queries
from scv.store._blobs import read_file
from scv.store._database import is_damage, reasons
from scv.store._notes import TITLE, WHOLE
from scv.store._rows import DamagedRow, Values, Write, read_item, read_session
from scv.store._writer import Writer

if TYPE_CHECKING:
    import sqlite3

    from scv.store._index import Before, Index

logger = logging.getLogger(__name__)
T = TypeVar("T")

INDEX_PREFIX = "search-"
_NOTES_AT_ONCE = 500
_BYTES_AT_ONCE = 1 << 20
_INDEXED_BYTES = 4 << 20
"""Longest text that is indexed whole; it takes some two seconds."""
_TRIES = 3


class Indexer:
    """Indexes and searches on the threads of its callers; any of them may call."""

    def __init__(self, folder: str, writer: Writer) -> None:
        self._folder, self._writer = folder, writer
        self._one_at_a_time = threading.Lock()
        self._background: threading.Thread | None = None
        self._is_stopping = False
        self._has_failed = False

    # --- in the background ---

    def start(self) -> None:
        """Look at all notes on a thread of its own, unless one is at it."""
        is_running = self._background is not None and self._background.is_alive()
        if is_running or self._is_stopping or self._has_failed:
            return
        self._background = threading.Thread(
            target=self._run, name="scv-index", daemon=True
        )
        self._background.start()

    def _run(self) -> None:
        try:
            self.catch_up()
        except Exception as error:
            if not self._is_stopping:
                self._has_failed = True  # until somebody searches, and is told
                logger.warning("session search: %s", error)

    def stop(self) -> None:
        """Let go of the index soon; wait for the background thread."""
        self._is_stopping = True
        if self._background is not None:
            self._background.join()

    # --- what callers want ---

    def catch_up(self) -> None:
        """Index everything that is noted.

        Raises:
            StoreError: The disk refuses, or this SQLite cannot search.
        """
        self._with_index(lambda index: self._catch_up(index, None))
        self._has_failed = False

    def forget(self, session_id: str) -> None:
        """Look at the notes of one session, which is deleted.

        Raises:
            StoreError: The disk refuses.
        """
        if self._writer.ask(_notes.index_name) is not None:
            self._with_index(lambda index: self._catch_up(index, session_id))

    def search(
        self, text: str, *, root: str | None, limit: int, before: "Before | None"
    ) -> list[Hit]:
        """Index what is noted, then search.

        Raises:
            StoreError: The disk refuses, or this SQLite cannot search.
        """
        from scv.store._words import words_of

        words = words_of(text)
        if not words or limit < 1:
            return []
        sessions: set[str] | None = None
        if root is not None:
            sessions = self._writer.ask(lambda db: _queries.sessions_at(db, root))

        def look(index: "Index") -> list[Hit]:
            self._catch_up(index, None)
            hits = index.search(words, sessions, before)
            return list(self._existing(hits, limit))

        hits = self._with_index(look)
        self._has_failed = False
        return hits

    def _existing(self, hits: Iterator[Hit], limit: int) -> Iterator[Hit]:
        """Leave out what is in the tables no more."""
        left = limit
        while left:
            some = list(islice(hits, left))
            there = self._writer.ask(partial(_existing, hits=some))
            yield from there
            if len(some) < left:
                return
            left -= len(there)

    # --- the index in use ---

    def _with_index(self, use: "Callable[[Index], T]") -> T:
        """Use the index; when it is damaged, begin again with a new one."""
        from scv.store._index import LAYOUT, Index, IndexGone, can_search

        for left in reversed(range(_TRIES)):
            name = self._writer.ask(_notes.index_name) or self._new_index(None)
            path = f"{self._folder}/{name}"
            try:
                if not name.startswith(f"{INDEX_PREFIX}{LAYOUT}-"):
                    raise IndexGone(path)
                with can_search(), contextlib.closing(Index(path)) as index:
                    return use(index)
            except Exception as error:
                is_lost = isinstance(error, IndexGone) or is_damage(error)
                if not (is_lost and left):
                    with reasons(path):
                        raise
                if not isinstance(error, IndexGone):
                    logger.warning("session search: %s is made anew: %s", path, error)
                self._new_index(name)
        raise AssertionError("the last try returns or raises")

    def _new_index(self, instead_of: str | None) -> str:
        """Make an empty index and have it used; returns the one that is in use now."""
        from scv.store._index import LAYOUT, can_search, make_index

        name = f"{INDEX_PREFIX}{LAYOUT}-{token_hex(8)}.db"
        path = f"{self._folder}/{name}"
        try:
            with reasons(path), can_search():
                make_index(path)
        except BaseException:
            remove_index(path)
            raise
        self._writer.enqueue(_notes.name_index(name, instead_of))
        used = self._writer.ask(_notes.index_name)
        if used != name:  # another process was faster, or the disk refuses
            remove_index(path)
        if used is None:
            raise StoreError(f"{self._folder}: the disk refused a search index")
        if instead_of is not None and used != instead_of:
            remove_index(f"{self._folder}/{instead_of}")
        return used

    # --- indexing ---

    def _catch_up(self, index: "Index", session_id: str | None) -> None:
        with self._one_at_a_time:
            while self._look_at_some(index, session_id):
                if self._is_stopping:
                    raise StoreError(f"{self._folder}: the session store is closed")
        index.shrink()

    def _look_at_some(self, index: "Index", session_id: str | None) -> bool:
        """Look at some notes in one transaction; False when there are none.

        It begins before they are read: of two processes that look at one thing,
        the later one has read it later.
        """
        if not self._writer.ask(_notes.waits):
            return False
        index.begin()
        try:
            notes = self._writer.ask(
                lambda db: _notes.read_notes(
                    db, session_id, _NOTES_AT_ONCE, _BYTES_AT_ONCE
                )
            )
            spread = list[Write]()
            for (session, item_id, _), row in notes:
                if item_id == WHOLE:
                    spread += self._spread(index, session)
                elif not self._put(index, session, item_id, row):
                    return True
            index.commit()
        finally:
            index.roll_back()
        looked = _notes.looked([note for note, _ in notes])
        self._writer.enqueue((*looked, *spread))
        return bool(notes)

    def _spread(self, index: "Index", session_id: str) -> list[Write]:
        """Note each part of a session, those that are only in the index too."""
        known = [_notes.note(session_id, each) for each in index.items_of(session_id)]
        title = _notes.note(session_id, TITLE)
        return [*known, title, _notes.note_items(session_id)]

    def _put(
        self, index: "Index", session_id: str, item_id: str, row: Values | None
    ) -> bool:
        at, text = 0, ""
        if row is not None:
            with contextlib.suppress(DamagedRow):  # whoever reads it will mend it
                if item_id == TITLE:
                    session = read_session(row)
                    at, text = session.created_at, session.title
                else:
                    item = read_item(row)
                    at, text = _created_at(item), self._text(item)
        return index.put(session_id, item_id, at, text, lambda: self._is_stopping)

    def _text(self, item: ItemRecord) -> str:
        if not _notes.wants_note(item):
            return ""
        if item.kind == "user_message":
            parts = item.body.get("parts", ())
            texts = (part.get("text") for part in parts if isinstance(part, dict))
            return "\n".join(text for text in texts if isinstance(text, str))
        blob_id = item.body.get("blobId")
        if blob_id is not None:
            with contextlib.suppress(NotFound, OSError):
                return self._blob_text(blob_id)
        return str(item.body.get("text", ""))

    def _blob_text(self, blob_id: str) -> str:
        found = self._writer.ask(lambda db: _queries.blob(db, blob_id))
        if found is None:
            raise NotFound(blob_id)
        data = read_file(self._folder, found.sha256, 0, _INDEXED_BYTES)
        return data.decode("utf-8", "replace")


def remove_index(path: str) -> None:
    """Remove an index; whoever has it open keeps a file without a name."""
    for end in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + end)


def _created_at(item: ItemRecord) -> int:
    at = item.body.get("createdAt")
    return at if isinstance(at, int) and 0 <= at < 1 << 62 else 0


def _existing(db: "sqlite3.Connection", hits: list[Hit]) -> list[Hit]:
    return [hit for hit in hits if _queries.exists(db, hit.session_id, hit.item_id)]
