"""A home that is served by `scv run`, for every test of the socket."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.kit import Daemon, served
from tests.fakes.model_server import ModelServer
from tests.server.kit import Place


@pytest.fixture
def place(scv_home: Path, tmp_path: Path, no_leftovers: None) -> Iterator[Place]:
    """Give the test a configured home, an empty workspace and a model to script."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with ModelServer() as model:
        place = Place(scv_home, workspace, model)
        place.configure()
        yield place


@pytest.fixture
def daemon(place: Place) -> Iterator[Daemon]:
    """Serve the place for the test; its proper end is part of every test."""
    with served(place) as daemon:
        yield daemon
