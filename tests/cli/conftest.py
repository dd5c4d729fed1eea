"""A place to run `scv` in, for every test of the command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Place
from tests.fakes.model_server import ModelServer


@pytest.fixture
def place(scv_home: Path, tmp_path: Path, no_leftovers: None) -> Place:
    """Return an empty workspace with an instance of its own."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return Place(scv_home, workspace)


@pytest.fixture
def model(place: Place) -> Iterator[ModelServer]:
    """Run a scripted model server that the place is configured for."""
    with ModelServer() as server:
        place.use_model(server)
        yield server
