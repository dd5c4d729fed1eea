"""The session store: sessions, events, history, approvals and blobs on disk.

Importing this loads no database library; opening the store does.
"""

from scv.store._store import SqliteStore, open_store

__all__ = ["SqliteStore", "open_store"]
