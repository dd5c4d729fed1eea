"""Where a conversation is cut: what a fork takes along, what a rewind keeps.

Items and history are two tables with one order: a turn's calls and answers
appear in both. A cut after an item keeps exactly the model's messages up to
it; a response whose calls reach beyond the item goes as a whole.
"""

from collections.abc import Sequence

from scv.core.history import AssistantEntry, Entry, OutputEntry
from scv.core.records import ItemRecord, Store
from scv.errors import NotFound
from scv.values import frozen

PAGE = 200


@frozen
class Cut:
    """What stays: items up to place `seq`, the first `position` history entries."""

    seq: int
    position: int
    items: tuple[ItemRecord, ...]
    turns: frozenset[str]
    removed: int
    """How many items go."""


async def find_cut(store: Store, session_id: str, item_id: str | None) -> Cut:
    """Cut a session after an item; None keeps everything.

    Raises:
        NotFound: The session has no such item.
    """
    items = await all_items(store, session_id)
    entries = await store.history(session_id)
    if item_id is None:
        kept = items
    else:
        place = next(
            (place for place, item in enumerate(items) if item.id == item_id), None
        )
        if place is None:
            raise NotFound("this session has no such item")
        kept = items[: place + 1]
    turns = frozenset(item.turn_id for item in kept if item.turn_id)
    if len(kept) == len(items):
        position = len(entries)
    else:
        position = _position(entries, kept, kept[-1].turn_id)
    return Cut(
        kept[-1].seq if kept else 0,
        position,
        tuple(kept),
        turns,
        len(items) - len(kept),
    )


async def all_items(store: Store, session_id: str) -> list[ItemRecord]:
    """Read every item of a session, in order."""
    items: list[ItemRecord] = []
    before: str | None = None
    while True:
        page, before, _ = await store.items(session_id, before=before, limit=PAGE)
        items[:0] = page
        if before is None:
            return items


def _position(
    entries: Sequence[tuple[str | None, Entry]],
    kept: Sequence[ItemRecord],
    last_turn: str | None,
) -> int:
    """Count the history entries that belong to the kept items."""
    turns = {item.turn_id for item in kept}
    calls = sum(item.kind == "tool_call" and item.turn_id == last_turn for item in kept)
    texts = sum(
        item.kind == "assistant_message" and item.turn_id == last_turn for item in kept
    )
    for position, (turn_id, entry) in enumerate(entries):
        if turn_id not in turns:
            return position
        if turn_id != last_turn:
            continue
        if isinstance(entry, AssistantEntry):
            if entry.calls and len(entry.calls) > calls:
                return position
            if not entry.calls and not texts:
                return position
            calls -= len(entry.calls)
            texts -= bool(entry.text)
        elif isinstance(entry, OutputEntry):
            continue
    return len(entries)
