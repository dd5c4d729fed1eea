"""What every front end sees at a glance: rows of session lists, and attention.

Changes gather for an instant and leave as one notification for each front end,
whatever it follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from scv.core.views import attention_of, session_view

if TYPE_CHECKING:
    from scv.core.records import Json, SessionRecord
    from scv.core.session import Session
    from scv.server.server import Server

GATHER_SECONDS = 0.05
STORED_SESSIONS = 200
"""How many resting sessions an attention list looks at, the newest first."""


class Board:
    """Tells all front ends of a server what changed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.rev = 0
        self.attention_rev = 0
        self._rows: dict[str, Json | None] = {}
        self._sessions: dict[str, Session] = {}
        self._wanting: dict[str, Json] = {}
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, session: Session) -> None:
        """A live session changed."""
        self._sessions[session.id] = session
        self._schedule()

    def stored(self, record: SessionRecord) -> None:
        """A session came into the store."""
        self._rows[record.id] = session_view(record, "idle")
        self._schedule()

    def removed(self, session_id: str) -> None:
        """A session is gone."""
        self._sessions.pop(session_id, None)
        self._rows[session_id] = None
        self._schedule()

    async def attention(self) -> list[Json]:
        """All sessions that want somebody, the longest waiting first."""
        store = await self._server.ready()
        entries = []
        for record in await store.sessions(limit=STORED_SESSIONS):
            live = self._server.sessions.get(record.id)
            wants = (
                live.attention()
                if live is not None
                else attention_of(record, await store.newest_turn(record.id))
            )
            if wants is not None:
                entries.append(_entry(record.id, record.title, wants))
        return sorted(entries, key=lambda entry: entry["since"])

    def _schedule(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(GATHER_SECONDS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        rows, self._rows = self._rows, {}
        sessions, self._sessions = self._sessions, {}
        rows.update((each.id, each.view()) for each in sessions.values())
        self.rev += 1
        self._send(
            "scv/sessions/changed",
            self.rev,
            [row for row in rows.values() if row is not None],
            [session_id for session_id, row in rows.items() if row is None],
        )
        wants = {
            each.id: _entry(each.id, each.record.title, reason)
            for each in sessions.values()
            if (reason := each.attention()) is not None
        }
        gone = [
            session_id
            for session_id in self._wanting
            if session_id in rows and session_id not in wants
        ]
        upsert = [
            entry
            for session_id, entry in wants.items()
            if self._wanting.get(session_id) != entry
        ]
        for session_id in gone:
            del self._wanting[session_id]
        self._wanting.update(wants)
        if gone or upsert:
            self.attention_rev += 1
            self._send("scv/attention/changed", self.attention_rev, upsert, gone)

    def _send(self, method: str, rev: int, upsert: list[Json], gone: list[str]) -> None:
        params = {"rev": rev, "upsert": upsert, "removed": gone}
        for connection in self._server.connections:
            if connection.features.get("events"):
                connection.peer.notify(method, params)


def _entry(session_id: str, title: str, wants: tuple[str, int]) -> Json:
    kind, since = wants
    return {"sessionId": session_id, "kind": kind, "since": since, "summary": title}
