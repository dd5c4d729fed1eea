"""One session's events on their way to one connection.

Live, an event leaves the moment it is published. A reader that falls behind
costs nothing but its own lag: the stream stops, and when the connection has
drained it catches up from the log, where finished deltas are already merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scv.core.log import Published
from scv.core.records import HOLE
from scv.core.session import Session
from scv.wire.limits import (
    BACKLOG_LAGGED_BYTES,
    BACKLOG_MERGE_BYTES,
    REPLAY_PAGE_BYTES,
)

if TYPE_CHECKING:
    from scv.core.records import Store
    from scv.rpc import Peer

EVENTS = "scv/session/events"


class Stream:
    """Sends a session's log from a number on; `sent` is the last number that left."""

    def __init__(
        self,
        peer: Peer,
        session: Session,
        store: Store,
        *,
        after: int,
        on_live: Callable[[], None],
        on_behind: Callable[[Stream], None],
    ) -> None:
        self._peer = peer
        self._session = session
        self._store = store
        self._on_live = on_live
        self._on_behind = on_behind
        self._behind_bytes = 0
        self.sent = after
        self.is_live = False
        self.is_lagged = False
        self.is_running = False
        self.is_stopped = False
        session.log.follow(self._published)

    def stop(self) -> None:
        """Send no more, also of what is being caught up."""
        self.is_stopped = True
        self._session.log.unfollow(self._published)

    async def catch_up(self) -> None:
        """Send what is missing, then go live; returns early when the reader lags."""
        log = self._session.log
        if self.is_running:
            return
        self.is_running = True
        try:
            await self._peer.drained()
            while self.sent < log.published and self._is_wanted():
                upto = log.published
                kept, complete = await self._store.events(
                    log.session_id,
                    log.epoch,
                    after=self.sent,
                    limit_bytes=REPLAY_PAGE_BYTES,
                )
                if not self._is_wanted():
                    break
                rows = [row for row in kept if row.last <= log.published]
                last = rows[-1].last if rows else self.sent
                if complete or len(rows) < len(kept):
                    last = max(last, upto)
                events = [row.data for row in rows if row.type != HOLE]
                self._peer.notify_encoded(
                    EVENTS, log.batch_params(self.sent + 1, last, events)
                )
                self.sent = last
                await self._peer.drained()
        finally:
            self.is_running = False
        if self._is_wanted():
            self.is_live = True
            self._behind_bytes = 0
            self._on_live()

    def resume(self, after: int) -> None:
        """The reader has fetched everything up to `after` itself."""
        self.sent = max(self.sent, after)
        self.is_lagged = False
        self._behind_bytes = 0

    def _is_wanted(self) -> bool:
        return not self.is_lagged and not self.is_stopped

    def _published(self, event: Published) -> None:
        if not self.is_live:
            self._fall_behind(event)
            return
        if event.last <= self.sent:
            return
        if event.first == self.sent + 1:
            params = event.params
        else:
            events = [event.data] if event.data else []
            params = self._session.log.batch_params(self.sent + 1, event.last, events)
        self._peer.notify_encoded(EVENTS, params)
        self.sent = event.last
        if self._peer.backlog_bytes > BACKLOG_MERGE_BYTES:
            self.is_live = False
            self._on_behind(self)

    def _fall_behind(self, event: Published) -> None:
        self._behind_bytes += len(event.data)
        if self._behind_bytes > BACKLOG_LAGGED_BYTES and not self.is_lagged:
            self.is_lagged = True
            log = self._session.log
            self._peer.notify(
                "scv/session/lagged",
                {
                    "sessionId": log.session_id,
                    "epoch": log.epoch,
                    "lastSent": self.sent,
                    "lastSeq": log.published,
                },
            )
