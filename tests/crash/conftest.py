"""Homes to crash in, one or several beside each other."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.model_server import ModelServer
from tests.server.kit import Place


@pytest.fixture
def make_place(
    scv_home: Path, tmp_path: Path, no_leftovers: None
) -> Iterator[Callable[[str], Place]]:
    """Give a function that makes a home, a workspace and a model of this name."""
    with ExitStack() as stack:

        def make(name: str) -> Place:
            folder = tmp_path / name
            home = folder / "home"
            for path in (folder, home, folder / "workspace"):
                path.mkdir(mode=0o700)
            place = Place(
                home / ".scv",
                folder / "workspace",
                stack.enter_context(ModelServer()),
                {"HOME": str(home), "SCV_HOME": str(home / ".scv")},
            )
            place.configure()
            return place

        yield make


@pytest.fixture
def place(make_place: Callable[[str], Place]) -> Place:
    """Give one of them."""
    return make_place("only")
