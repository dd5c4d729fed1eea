"""Ids and the clock: sortable by creation, unguessable."""

import os
import time

_last_ms = 0


def now_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def new_id(prefix: str) -> str:
    """Make an id such as `s_0199a3…`; later ids of this process sort later."""
    global _last_ms
    _last_ms = max(_last_ms + 1, now_ms())
    return f"{prefix}_{_last_ms:012x}{os.urandom(6).hex()}"
