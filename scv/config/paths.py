"""Where an instance keeps its things: everything is below `SCV_HOME`."""

from collections.abc import Mapping
from pathlib import Path

from scv.config.root import SOCKET_NAME, find_root
from scv.values import frozen


@frozen
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

    @property
    def socket(self) -> Path:
        """Where the instance's server listens, when one runs."""
        return self.root / SOCKET_NAME

    @property
    def server_lock(self) -> Path:
        """Held by the one process that may listen there."""
        return self.root / "server.lock"


def find_home(environment: Mapping[str, str], override: str | None = None) -> Home:
    """Locate the instance: a flag, `SCV_HOME`, else `~/.scv`; nothing is created."""
    return Home(Path(find_root(environment, override)))


def project_file(workspace: str) -> Path:
    """The project's own configuration."""
    return Path(workspace) / ".scv" / "config.toml"
