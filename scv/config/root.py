"""Where an instance lives, found without loading anything.

Commands that must start at once use this; all others use `scv.config.paths`.
"""

import os

TYPE_CHECKING = False  # as typing's; importing that would double the time to start
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_NAME = "server.sock"


def find_root(environment: "Mapping[str, str]", override: str | None = None) -> str:
    """Locate the instance: a flag, `SCV_HOME`, else `~/.scv`; nothing is created."""
    chosen = override or environment.get("SCV_HOME") or "~/.scv"
    home = environment.get("HOME")
    if chosen.startswith("~") and home:
        chosen = home + chosen[1:]
    return os.path.realpath(os.path.expanduser(chosen))
