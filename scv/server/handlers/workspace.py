"""Directories that clients name."""

import os

from scv.core.prompt import shown_path
from scv.wire.errors import refuse


def directory(path: str) -> str:
    """Resolve a workspace directory.

    Raises:
        RequestRefused: 4230, it is not an absolute path of a directory.
    """
    path = shown_path(path)
    if not os.path.isabs(path) or "\0" in path:
        raise refuse("workspace.invalid", "a workspace is named by an absolute path")
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise refuse(
            "workspace.invalid", f"there is no directory {path}; create it first"
        )
    return real


def real_path(path: str) -> str:
    """Resolve a path that need not exist."""
    return os.path.realpath(shown_path(path))
