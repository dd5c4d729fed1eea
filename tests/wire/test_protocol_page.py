"""The frames shown in docs/protocol.md are frames of the protocol."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scv.wire.errors import CODES, RETRYABLE
from scv.wire.event import EVENTS
from scv.wire.item import Item
from scv.wire.lifecycle import ClientHandshake, InitializeParams, ServerHandshake
from scv.wire.methods import METHODS
from scv.wire.validate import check

Json = dict[str, Any]

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
BLOCK = re.compile(r"^```json (client|server)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def frames() -> list[tuple[str, Json]]:
    """Every frame of the page with its sender."""
    return [(who, json.loads(text)) for who, text in BLOCK.findall(PAGE.read_text())]


def exact(wire_type: Any, value: Any) -> None:
    """Fail unless the value fits and every field of it is known."""
    assert check(wire_type, value) == value


def check_params_of(method: str, params: Json, *, sender: str) -> None:
    if method == "initialize":
        check(InitializeParams, params)
        exact(ClientHandshake, params["capabilities"]["experimental"]["scv"])
    elif method != "initialized":
        assert METHODS[method].to != sender
        exact(METHODS[method].params, params)
    for event in params.get("events", []):
        exact(EVENTS[event["type"]], event["data"])
        if "item" in event["data"]:
            exact(Item, event["data"]["item"])


def check_result_of(method: str, result: Json) -> None:
    if method == "initialize":
        exact(ServerHandshake, result["capabilities"]["experimental"]["scv"])
    else:
        exact(METHODS[method].result, result)


@pytest.mark.parametrize("position", range(len(frames())))
def test_an_example_frame_is_one_of_the_protocol(position: int) -> None:
    sender, frame = frames()[position]

    if "method" in frame:
        check_params_of(frame["method"], frame["params"], sender=sender)
        return
    asked = [
        earlier["method"]
        for who, earlier in frames()[:position]
        if who != sender and "method" in earlier and earlier.get("id") == frame["id"]
    ]
    if "error" in frame:
        error, name = frame["error"], frame["error"]["data"]["code"]
        assert error["code"] == CODES[name]
        assert error["data"]["retryable"] == (name in RETRYABLE)
    else:
        check_result_of(asked[-1], frame["result"])


def test_the_page_shows_a_whole_turn() -> None:
    methods = [frame.get("method") for _, frame in frames()]
    events = [
        event["type"]
        for _, frame in frames()
        for event in frame.get("params", {}).get("events", [])
    ]

    assert {"initialize", "scv/session/create", "scv/turn/start"} < set(methods)
    assert "scv/approval/request" in methods
    assert events[0] == "turn.accepted"
    assert events[-1] == "turn.ended"
