"""The edges of the core: what it needs from models, tools and the store.

Data goes in and out as plain values. The core awaits nothing but these ports.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from scv.core.history import AssistantEntry, Entry
from scv.values import frozen

if TYPE_CHECKING:
    from scv.config.settings import Settings

Risk = Literal["read_only", "filesystem", "process", "delegate", "network"]
"""How far a call can reach; `read_only` needs no question under `on-risk`."""


# --- models -----------------------------------------------------------------


@frozen
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


@frozen
class ModelRequest:
    """One request to a model: system text, selected history, tools sorted by name."""

    instructions: str
    history: Sequence[Entry]
    tools: Sequence[ToolSpec]
    session_id: str
    effort: str | None = None


@frozen
class TokenUsage:
    """Tokens of one response; `input_tokens` includes the cached ones."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@frozen
class TextDelta:
    """More of the visible answer."""

    text: str


@frozen
class ReasoningDelta:
    """More of the model's visible reasoning."""

    text: str


@frozen
class RetryScheduled:
    """The request failed before anything was shown and is tried again after a wait."""

    attempt: int
    delay_seconds: float
    reason: str


@frozen
class ResponseDone:
    """The proper end of a response; the last event of the stream, exactly once.

    `stop`: `end` (finished, calls may follow), `length` (cut by the output
    limit), `filter` (cut by a content filter), `refusal`. Calls of anything but
    `end` never run. `detail` is the endpoint's own reason, for people.
    """

    message: AssistantEntry
    usage: TokenUsage | None
    stop: Literal["end", "length", "filter", "refusal"] = "end"
    detail: str = ""


ModelEvent = TextDelta | ReasoningDelta | RetryScheduled | ResponseDone


class Model(Protocol):
    """One model of one endpoint."""

    @property
    def wire(self) -> str:
        """Name of the API: `responses`, …"""
        ...

    @property
    def name(self) -> str:
        """The model's name as the endpoint knows it."""
        ...

    def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one response; retries inside while nothing was shown.

        Raises:
            ProviderError: The response failed; partial text stays shown.
        """
        ...


# --- questions ---


class Asker(Protocol):
    """Carries questions to front ends. Answers come back through the session."""

    def offer(self, session_id: str, approval: dict[str, Any]) -> bool:
        """Send a question to everybody who may answer; False when nobody can now."""
        ...

    def is_attended(self, approval_id: str) -> bool:
        """True while somebody who may answer has the question."""
        ...

    def withdraw(self, session_id: str, approval_id: str) -> None:
        """The question is closed: take it away from everybody."""
        ...


# --- tools ------------------------------------------------------------------


@frozen
class Target:
    """A file a call will change: hash before (None = absent), `create` or `replace`."""

    path: str
    base_sha256: str | None
    mode: str


@frozen
class PreparedCall:
    """A validated call: exactly what will run, and what is shown about it.

    `arguments` are normalised JSON values without floats. `summary` and the
    texts inside `subject` are raw; the core makes control characters visible.
    `subject` is a `scv.wire.approval.Subject`. `payload` is the tool's own and
    never leaves the process.
    """

    arguments: dict[str, Any]
    risk: Risk
    title: str
    summary: str
    subject: dict[str, Any]
    targets: tuple[Target, ...] = ()
    executable: str | None = None
    payload: Any = field(default=None, compare=False, repr=False)


@frozen
class ToolResult:
    """What a call gave: `output` is text for the model, valid UTF-8, within limits.

    `diff` is a unified diff for front ends. `full_output` holds the bytes that
    were cut from a long output, whole; the core stores them as a blob.
    """

    success: bool
    output: str
    truncated: bool = False
    total_bytes: int | None = None
    diff: str | None = None
    full_output: bytes | None = None


@frozen
class Notice:
    """Something a person should know of what a session works with, said once."""

    code: str
    message: str


@frozen
class Runtime:
    """What a session works with: resolved settings, a model, tools by name.

    `effort` is how hard the model shall think, in the endpoint's own word.
    """

    settings: Settings
    model: Model
    tools: Mapping[str, Tool]
    instructions: str
    notices: tuple[Notice, ...] = ()
    effort: str | None = None


class Progress(Protocol):
    """What a running call tells meanwhile; both are cheap."""

    def output(self, text: str) -> None:
        """The newest output, in place of what was told before."""
        ...

    def process(self, pid: int) -> None:
        """A process of this call runs until the call ends."""
        ...


class Tool(Protocol):
    """A tool offered to the model. Built per session with what it needs."""

    @property
    def spec(self) -> ToolSpec:
        """Name, description and schema; constant for the life of the tool."""
        ...

    async def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Validate and normalise; no side effect. Called again right before `run`.

        Raises:
            ToolError: The call cannot run; nobody is asked.
        """
        ...

    async def run(self, call: PreparedCall, progress: Progress) -> ToolResult:
        """Carry the call out. `progress` is told what a person sees meanwhile.

        Cancelling ends everything the call started before it returns.

        Raises:
            ToolError: A failure in SCV's words; anything else is a bug.
        """
        ...
