"""A followed session: its mirror, kept whole over gaps, and who listens to it."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anyio import Event

from scv.client.mirror import Json, Mirror
from scv.errors import ConnectionLost, ScvError
from scv.rpc import RemoteError
from scv.wire.errors import CODES

if TYPE_CHECKING:
    from scv.client.client import Client
    from scv.wire.session import Session
    from scv.wire.turn import TurnCancelling, TurnStarted

logger = logging.getLogger(__name__)

OnEvents = Callable[[Json, tuple[Json, ...]], None]
"""Called with each applied batch and the events that changed something."""

TAIL_ITEMS = 50
REMEMBERED_TURNS = 256


def ignore_events(batch: Json, events: tuple[Json, ...]) -> None:
    """Listen to nothing; the mirror is enough."""


class FollowedSession:
    """One session that this client is attached to.

    `on_events` is called at once for every applied batch, `on_reset` when history
    was replaced and the front end must draw the mirror anew.
    """

    def __init__(
        self,
        client: "Client",
        mirror: Mirror,
        on_events: OnEvents,
    ) -> None:
        self.mirror = mirror
        self.on_events = on_events
        self.on_reset: Callable[[], None] = lambda: None
        self._client = client
        self._held: list[Json] | None = None
        self._waiting: dict[str, Event] = {}
        self._ended: dict[str, Json] = {}
        self._is_lost = False
        if mirror.turn is not None and mirror.turn["state"] == "ended":
            self._end(mirror.turn)

    @property
    def id(self) -> str:
        """The session's id."""
        return self.mirror.id

    # --- acts ---

    async def prompt(self, text: str) -> "TurnStarted":
        """Give a prompt; returns when it is on disk.

        Raises:
            RemoteError: 4241 a turn is running, 4291 no usable model, …
        """
        return await self._client.start_turn(self.id, [{"type": "text", "text": text}])

    async def cancel(self, turn_id: str, reason: str = "") -> "TurnCancelling":
        """Stop a turn of this session."""
        return await self._client.cancel_turn(self.id, turn_id, reason=reason)

    async def update(self, **fields: Any) -> "Session":
        """Change title, archive mark or configuration."""
        return await self._client.update_session(self.id, **fields)

    async def ended(self, turn_id: str) -> Json:
        """Wait for the end of a turn of this session and return the turn.

        Raises:
            ConnectionLost: The server is gone; the outcome is unknown.
        """
        while turn_id not in self._ended:
            if self._is_lost:
                raise ConnectionLost("the server ended before the turn did")
            await self._waiting.setdefault(turn_id, Event()).wait()
        return self._ended[turn_id]

    # --- what the client hands in ---

    def take(self, batch: Json) -> None:
        """Apply a batch, or keep it until missing events are here."""
        if self._held is not None:
            self._held.append(batch)
            return
        if not self._apply(batch):
            self.recover(batch)

    def _apply(self, batch: Json) -> bool:
        """Apply a batch and tell of it; False when something is missing before it."""
        applied = self.mirror.apply(batch)
        if applied.standing == "applied":
            self._tell(batch, applied.events)
        return applied.standing in ("applied", "dropped")

    def recover(self, batch: Json | None = None) -> None:
        """Fetch what is missing; batches that come meanwhile wait."""
        if self._held is None:
            self._held = [] if batch is None else [batch]
            self._client.spawn(self._recover)

    def lose(self) -> None:
        """The connection is gone: wake everybody who waits."""
        self._is_lost = True
        for event in self._waiting.values():
            event.set()

    def _tell(self, batch: Json, events: tuple[Json, ...]) -> None:
        self.on_events(batch, events)
        for event in events:
            if event["type"] == "turn.ended":
                turn = {"id": event["turnId"], "sessionId": self.id, "state": "ended"}
                self._end({**turn, **event["data"]})

    def _end(self, turn: Json) -> None:
        """Remember how a turn ended, and wake who waits for it."""
        while len(self._ended) >= REMEMBERED_TURNS:
            del self._ended[next(iter(self._ended))]
        self._ended[turn["id"]] = turn
        waiting = self._waiting.pop(turn["id"], None)
        if waiting is not None:
            waiting.set()

    async def _recover(self) -> None:
        try:
            while self._held is not None:
                if not (self._is_one_epoch() and await self._replay()):
                    await self._attach_anew()
                    self._held = [
                        batch
                        for batch in self._held
                        if batch["epoch"] == self.mirror.epoch
                    ]
                while self._held and self._apply(self._held[0]):
                    del self._held[0]
                self._held = self._held or None
        except ScvError as error:
            self._held = None
            logger.warning("session %s cannot be followed: %s", self.id, error.message)

    def _is_one_epoch(self) -> bool:
        return all(batch["epoch"] == self.mirror.epoch for batch in self._held or ())

    async def _replay(self) -> bool:
        """Read the log from the last known number; False when it cannot go on."""
        while True:
            mirror = self.mirror
            try:
                batch = await self._client.replay(
                    self.id, epoch=mirror.epoch, after=mirror.last
                )
            except RemoteError as error:
                if error.code != CODES["replay.unavailable"]:
                    raise
                return False
            if not self._apply(batch):
                return False
            if batch.get("complete", True):
                return True

    async def _attach_anew(self) -> None:
        mirror = await self._client.load_mirror(self.id, tail_items=TAIL_ITEMS)
        self.mirror = mirror
        self.on_reset()
        if mirror.turn is not None and mirror.turn["state"] == "ended":
            self._end(mirror.turn)
