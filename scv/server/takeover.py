"""Sessions whose process died: brought to rest before anybody reads or runs them.

One that cannot be is no reason to refuse the others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scv.errors import ScvError, StoreError

if TYPE_CHECKING:
    from scv.core.records import Store, StoredSession

logger = logging.getLogger(__name__)


async def finish_interrupted(store: Store) -> None:
    """Bring every session of a dead process to rest: list it as interrupted.

    Raises:
        StoreError: The store cannot be read.
    """
    for session_id in await store.unfinished_sessions():
        try:
            await finish(store, session_id)
        except StoreError as error:
            logger.error("session %s stays as it is: %s", session_id, error.message)


async def finish(store: Store, session_id: str) -> None:
    """Bring a session to rest, unless a living process runs it.

    Raises:
        StoreError: It cannot be.
    """
    from scv.core.records import SessionLocked

    try:
        lock = store.lock_session(session_id)
    except SessionLocked:
        return
    try:
        await recovered(store, session_id)
    finally:
        lock.release()


async def recovered(store: Store, session_id: str) -> StoredSession | None:
    """Load a session whose lock we hold, at rest; None when there is none.

    Raises:
        StoreError: What is stored of it cannot be used.
    """
    from scv.core.recovery import recover

    try:
        stored = await store.load(session_id)
        return None if stored is None else await recover(store, stored)
    except ScvError:
        raise
    except Exception as error:
        logger.exception("session %s cannot be brought to rest", session_id)
        raise StoreError(
            f"what is stored of session {session_id} cannot be used; the server's"
            " log says why, and other sessions work"
        ) from error
