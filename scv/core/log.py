"""A session's numbered event log: one order for all clients.

Theory of operation. `append` gives an event the next number, encodes it once,
hands it to the store's queue and publishes it to every follower. Three rules
hold it together:

- A *held* event and everything after it stay unpublished until the next commit
  is on disk; if that commit fails the held event never existed, and the next
  batch covers its number with nothing.
- Numbers above the ceiling that is known to be on disk are held too, so a
  number that a client saw is never given to another event after a crash.
- Deltas of one item gather for an instant: they leave with the current run of
  the event loop, and at most every `MERGE_SECONDS` when they come in a flood.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from anyio import CancelScope

from scv.core.ids import now_ms
from scv.core.records import HOLE, Change, EventRecord, Store
from scv.values import frozen
from scv.wire.event import NOT_DURABLE
from scv.wire.limits import EVENT_NUMBER_BLOCK

logger = logging.getLogger(__name__)

MERGE_SECONDS = 0.003
"""Shortest time between two delta events of a flood (a few hundred a second)."""

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@frozen
class Published:
    """An event as it leaves: it covers `first..last`; `params` is the whole batch.

    `params` fits a follower whose last number is `first - 1`; `data` is the
    event alone (empty when the range holds none).
    """

    first: int
    last: int
    data: bytes
    params: bytes


@frozen
class _Waiting:
    number: int
    held: bool
    data: bytes


Follower = Callable[[Published], None]


class EventLog:
    """Numbers, keeps and publishes the events of one session."""

    def __init__(
        self,
        session_id: str,
        epoch: str,
        *,
        last: int,
        ceiling: int,
        store: Store,
        raise_ceiling: Callable[[int], Change],
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], Any],
    ) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.last = last
        self.published = last
        self.ceiling = ceiling
        self._store = store
        self._raise_ceiling = raise_ceiling
        self._spawn = spawn
        self._raising = False
        self._synced = last
        self._waiting: deque[_Waiting] = deque()
        self._held_records: list[EventRecord] = []
        self._followers: list[Follower] = []
        self._prefix = (
            f'{{"sessionId":{json.dumps(session_id)},"epoch":{json.dumps(epoch)},'
        ).encode()
        self._delta: tuple[str, str, str] | None = None
        self._delta_parts: list[str] = []
        self._delta_offset = 0
        self._delta_timer: asyncio.Handle | None = None
        self._delta_sent = 0.0

    # --- followers ---

    def follow(self, follower: Follower) -> None:
        """Call `follower` with every event published from now on, at once."""
        self._followers.append(follower)

    def unfollow(self, follower: Follower) -> None:
        """Stop calling it."""
        if follower in self._followers:
            self._followers.remove(follower)

    def batch_params(self, first: int, last: int, events: list[bytes]) -> bytes:
        """Encode the params of `scv/session/events` for a range."""
        body = b",".join(events)
        return b'%s"from":%d,"to":%d,"events":[%s]}' % (
            self._prefix,
            first,
            last,
            body,
        )

    def close(self) -> None:
        """Publish nothing any more: the epoch is over."""
        self.flush_delta()
        self._followers.clear()

    # --- writing ---

    def append(
        self,
        event_type: str,
        data: Any,
        *,
        turn_id: str | None = None,
        item_id: str | None = None,
        held: bool = False,
    ) -> int:
        """Number and publish one event; `held` waits for the next `commit`."""
        self.flush_delta()
        return self._add(event_type, data, turn_id, item_id, held)

    def delta(
        self, item_id: str, turn_id: str, field: str, offset: int, text: str
    ) -> None:
        """Add text to a running item; `offset` counts its code points so far."""
        key = (item_id, turn_id, field)
        if self._delta is not None and self._delta != key:
            self.flush_delta()
        if self._delta is None:
            self._delta = key
            self._delta_offset = offset
            loop = asyncio.get_running_loop()
            wait = self._delta_sent + MERGE_SECONDS - loop.time()
            self._delta_timer = (
                loop.call_soon(self.flush_delta)
                if wait <= 0
                else loop.call_later(wait, self.flush_delta)
            )
        self._delta_parts.append(text)

    def flush_delta(self) -> None:
        """Publish the gathered delta, if any."""
        if self._delta is None:
            return
        item_id, turn_id, field = self._delta
        text = "".join(self._delta_parts)
        self._delta = None
        self._delta_parts.clear()
        if self._delta_timer is not None:
            self._delta_timer.cancel()
            self._delta_timer = None
        self._delta_sent = asyncio.get_running_loop().time()
        self._add(
            "item.delta",
            {"field": field, "append": text, "offset": self._delta_offset},
            turn_id,
            item_id,
            False,
        )

    async def commit(self, *changes: Change) -> None:
        """Put everything so far on disk, synced, then publish what was held for it.

        Raises:
            StoreError: Nothing is kept; held events of this commit are gone.
        """
        number = self.last
        records = tuple(self._held_records)
        self._held_records.clear()
        ceiling = self.ceiling
        if number > ceiling - EVENT_NUMBER_BLOCK // 2:
            ceiling = number + EVENT_NUMBER_BLOCK
            changes = (*changes, self._raise_ceiling(ceiling))
        try:
            with CancelScope(shield=True):
                await self._store.commit((*records, *changes))
        except BaseException:
            self._waiting = deque(
                event
                for event in self._waiting
                if not event.held or event.number > number
            )
            self._release()
            raise
        self.ceiling = max(self.ceiling, ceiling)
        self._synced = max(self._synced, number)
        self._release()

    # --- inside ---

    def _add(
        self,
        event_type: str,
        data: Any,
        turn_id: str | None,
        item_id: str | None,
        held: bool,
    ) -> int:
        self.last += 1
        number = self.last
        event: dict[str, Any] = {"type": event_type, "at": now_ms()}
        if turn_id is not None:
            event["turnId"] = turn_id
        if item_id is not None:
            event["itemId"] = item_id
        event["data"] = data
        encoded = _encode(event).encode()
        is_kept = event_type not in NOT_DURABLE
        record = EventRecord(
            self.session_id,
            self.epoch,
            number,
            number,
            event_type if is_kept else HOLE,  # its number is spent all the same
            item_id,
            encoded if is_kept else b"",
        )
        if held:
            self._held_records.append(record)
        else:
            self._store.enqueue((record,))
        if number > self.ceiling - EVENT_NUMBER_BLOCK // 2 and not self._raising:
            self._raising = True
            self._spawn(self._reserve)
        if held or self._waiting or number > self.ceiling:
            self._waiting.append(_Waiting(number, held, encoded))
        else:
            self._publish(number, encoded)
        return number

    async def _reserve(self) -> None:
        try:
            await self.commit()
        except Exception as error:  # the next event tries again
            logger.error("session %s: numbers not kept: %s", self.session_id, error)
        finally:
            self._raising = False

    def _publish(self, number: int, encoded: bytes) -> None:
        first = self.published + 1
        self.published = number
        params = self.batch_params(first, number, [encoded])
        self._emit(Published(first, number, encoded, params))

    def _emit(self, event: Published) -> None:
        for follower in tuple(self._followers):
            try:
                follower(event)
            except Exception:  # one front end's trouble is not the session's
                logger.exception("session %s: a follower failed", self.session_id)
                self.unfollow(follower)

    def _release(self) -> None:
        while self._waiting:
            event = self._waiting[0]
            if (event.held and event.number > self._synced) or (
                event.number > self.ceiling
            ):
                return
            self._waiting.popleft()
            self._publish(event.number, event.data)
