"""A client that nobody here wrote: pytest-lsp's, on pygls, over its own transport."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lsprotocol import types
from pytest_lsp import LanguageClient, make_test_lsp_client

from tests.fakes.model_server import HANG, delta
from tests.server.kit import ROOT, Json, Place, server_command

pytestmark = pytest.mark.anyio

WAIT_SECONDS = 30.0
SCV = {
    "protocol": {"major": 1, "minor": 0},
    "clientId": "stranger",
    "features": {"events": True, "approvals": True},
}


class Stranger:
    """Drives the foreign client; keeps the events and questions that came."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.events: list[Any] = []
        self.questions: list[Any] = []
        self.option = "deny"
        self._changed = asyncio.Event()

        @client.feature("scv/session/events")
        def take(params: Any) -> None:
            self.events += params.events
            self._changed.set()

        @client.feature("scv/approval/request")
        def answer(params: Any) -> Json:
            self.questions.append(params)
            return {"optionId": self.option, "digest": params.digest}

    async def call(self, method: str, **params: Any) -> Any:
        request = self.client.protocol.send_request_async(f"scv/{method}", params)
        return await asyncio.wait_for(request, WAIT_SECONDS)

    async def until(self, find: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(WAIT_SECONDS):
            while not (found := [e for e in self.events if find(e)]):
                self._changed.clear()
                await self._changed.wait()
        return found[0]

    async def prompt(self, session_id: str, text: str, op_id: str) -> Any:
        parts = [{"type": "text", "text": text}]
        started = await self.call(
            "turn/start", opId=op_id, sessionId=session_id, input=parts
        )
        return started.turnId

    async def end(self, turn_id: str) -> Any:
        event = await self.until(
            lambda e: e.type == "turn.ended" and e.turnId == turn_id
        )
        return event.data


@asynccontextmanager
async def visiting(**experimental: Any) -> AsyncIterator[tuple[Stranger, Any]]:
    """Start a server as an editor does; leaves by shutdown and exit."""
    client = make_test_lsp_client()
    stranger = Stranger(client)
    program, *arguments = server_command()
    await client.start_io(program, *arguments, cwd=ROOT, env=dict(os.environ))
    capabilities = types.ClientCapabilities(experimental=experimental or None)
    result = await client.initialize_session(
        types.InitializeParams(capabilities=capabilities)
    )
    yield stranger, result
    await client.shutdown_session()
    server = client._server
    assert server is not None
    assert server.returncode == 0
    await client.stop()
    assert client.error is None


async def test_a_stranger_does_the_main_job(place: Place) -> None:
    place.model.call("bash", {"command": "touch denied"})
    place.model.say("you said no")
    place.model.call("bash", {"command": "touch allowed"}, text="then I try")
    place.model.say("done")
    place.model.raw(delta("this never "), HANG)

    async with visiting(scv=SCV) as (stranger, result):
        assert result.server_info.name == "scv"
        created = await stranger.call(
            "session/create", opId="1", workspace={"root": str(place.workspace)}
        )
        session_id = created.session.id

        turn = await stranger.prompt(session_id, "try", "2")
        assert (await stranger.end(turn)).status == "completed"
        assert stranger.questions[0].subject.command == "touch denied"
        assert not (place.workspace / "denied").exists()

        stranger.option = "once"
        turn = await stranger.prompt(session_id, "again", "3")
        assert (await stranger.end(turn)).status == "completed"
        assert stranger.questions[1].subject.command == "touch allowed"
        assert (place.workspace / "allowed").exists()

        turn = await stranger.prompt(session_id, "for ever", "4")
        await stranger.until(lambda e: e.type == "item.delta" and e.turnId == turn)
        answer = await stranger.call(
            "turn/cancel", opId="5", sessionId=session_id, turnId=turn
        )
        assert answer.state == "cancelling"
        assert (await stranger.end(turn)).status == "cancelled"


async def test_a_plain_lsp_client_comes_and_goes(place: Place) -> None:
    async with visiting() as (stranger, result):
        assert result.server_info.name == "scv"
        assert result.capabilities.experimental is None
        assert result.capabilities.position_encoding == "utf-16"
        assert stranger.events == []
    assert place.model.requests == []
