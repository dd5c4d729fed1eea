"""Asks a model over HTTP and keeps everything it gave, failure included."""

from dataclasses import dataclass, field
from typing import Any

from scv.config.settings import Profile, ProviderLimits
from scv.core.history import Entry, UserEntry
from scv.core.ports import (
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ResponseDone,
    RetryScheduled,
    TextDelta,
    ToolSpec,
)
from scv.errors import ProviderError
from scv.providers import ModelEndpoints, ResponsesModel
from tests.fakes.model_server import ModelServer

TOOLS = [
    ToolSpec(name, f"the tool {name}", {"type": "object", "properties": {}})
    for name in ("bash", "edit", "list", "read", "search", "write")
]


@dataclass
class Outcome:
    """One response, as the core would see it."""

    events: list[ModelEvent] = field(default_factory=list)
    error: ProviderError | None = None

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextDelta))

    @property
    def reasoning(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, ReasoningDelta))

    @property
    def retries(self) -> list[RetryScheduled]:
        return [e for e in self.events if isinstance(e, RetryScheduled)]

    @property
    def done(self) -> ResponseDone:
        assert self.error is None, self.error
        (done,) = (e for e in self.events if isinstance(e, ResponseDone))
        assert self.events[-1] is done
        return done

    @property
    def failure(self) -> ProviderError:
        assert self.error is not None, self.events
        assert not any(isinstance(e, ResponseDone) for e in self.events)
        assert "\n" not in self.error.message
        return self.error

    @property
    def calls(self) -> list[tuple[str, str]]:
        return [(call.name, call.arguments) for call in self.done.message.calls]


def open_model(
    endpoints: ModelEndpoints,
    server: ModelServer,
    *,
    limits: ProviderLimits | None = None,
    environment: dict[str, str] | None = None,
    retry_base_seconds: float = 0.001,
    **profile: Any,
) -> ResponsesModel:
    fields = {"base_url": server.url, "api_key": server.key, "model": "m", **profile}
    return endpoints.open_model(
        "test",
        Profile(**fields),
        limits=limits or ProviderLimits(),
        model_name=None,
        environment=environment or {},
        retry_base_seconds=retry_base_seconds,
    )


async def ask_model(model: ResponsesModel, *history: Entry) -> Outcome:
    outcome = Outcome()
    request = ModelRequest("be brief", history or (UserEntry("hi"),), TOOLS, "s_1")
    try:
        async for event in model.respond(request):
            outcome.events.append(event)
    except ProviderError as error:
        outcome.error = error
    return outcome


async def ask(server: ModelServer, *history: Entry, **options: Any) -> Outcome:
    async with ModelEndpoints() as endpoints:
        return await ask_model(open_model(endpoints, server, **options), *history)
