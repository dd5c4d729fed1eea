"""Where an instance keeps its things: everything is below `SCV_HOME`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """The root of one instance."""

    root: Path

    @property
    def config_file(self) -> Path:
        """The user's configuration."""
        return self.root / "config.toml"

    @property
    def state(self) -> Path:
        """Session store, blobs and locks."""
        return self.root / "state"

    @property
    def log_file(self) -> Path:
        """Log of servers that have no terminal."""
        return self.root / "state" / "scv.log"


def find_home(environment: Mapping[str, str], override: str | None = None) -> Home:
    """Locate the instance: a flag, `SCV_HOME`, else `~/.scv`; nothing is created."""
    chosen = override or environment.get("SCV_HOME") or "~/.scv"
    home = environment.get("HOME")
    if chosen.startswith("~") and home:
        chosen = home + chosen[1:]
    return Home(Path(os.path.realpath(os.path.expanduser(chosen))))


def project_file(workspace: str) -> Path:
    """The project's own configuration."""
    return Path(workspace) / ".scv" / "config.toml"
