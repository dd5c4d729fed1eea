"""Handshake: what `initialize` carries for SCV beside the LSP fields."""

from typing import Any, Literal, NotRequired, TypedDict

from scv.wire.identifiers import Id, Role, Seq


class ProtocolVersion(TypedDict):
    """Version of the protocol; majors must be equal, minors only add."""

    major: int
    minor: int


class ClientFeatures(TypedDict):
    """What a front end can do; an absent feature is false."""

    events: NotRequired[bool]
    """It applies `scv/session/events`, which come to every client that follows."""
    approvals: NotRequired[bool]
    """It answers `scv/approval/request`."""


class ResumePoint(TypedDict):
    """Where a client stopped in one session's log."""

    sessionId: Id
    epoch: Id
    after: Seq
    """Number of the last event it applied."""


class RootMapping(TypedDict):
    """How a workspace root is spelled on the client's side."""

    client: str
    server: str


class ClientHandshake(TypedDict):
    """`capabilities.experimental.scv` of the `initialize` request.

    A client that sends none is a plain LSP client and gets no `scv/*` traffic.
    """

    protocol: ProtocolVersion
    clientId: Id
    """Stable random id of the front end; the scope of its operation ids."""
    role: NotRequired[Role]
    """Ceiling for this connection; `controller` when absent."""
    features: NotRequired[ClientFeatures]
    rootMap: NotRequired[list[RootMapping]]
    """Reserved: paths are those of the server's host."""
    resume: NotRequired[list[ResumePoint]]
    """Sessions to follow on; the first 64 count."""


class ResumeStatus(TypedDict):
    """What became of one resume point."""

    sessionId: Id
    epoch: NotRequired[Id]
    lastSeq: NotRequired[Seq]
    status: Literal["replaying", "current", "reset", "unknown"]
    """`reset`: the numbers are not usable any more, attach again."""


class ServerHandshake(TypedDict):
    """`capabilities.experimental.scv` of the `initialize` result."""

    protocol: ProtocolVersion
    serverId: Id
    """New for each server process."""
    build: str
    """Version of the server."""
    transport: Literal["stdio", "unix", "memory"]
    connectionId: Id
    """Names this connection in logs."""
    schemaHash: str
    """Names the exact types this server validates with; see `scv/schema/get`."""
    features: list[str]
    """Method groups this server has."""
    limits: dict[str, int]
    """Bounds of this server; see "Limits" in docs/protocol.md."""
    resumed: list[ResumeStatus]
    """One for each of the client's resume points."""


class InitializeParams(TypedDict):
    """LSP `initialize`; only the fields the server reads are named."""

    processId: NotRequired[int | None]
    """A server on stdio ends when this process does; on a socket it is not read."""
    clientInfo: NotRequired[dict[str, Any]]
    """Its `name` is shown as the author of prompts and answers."""
    capabilities: NotRequired[dict[str, Any]]
    """`experimental.scv` holds the ClientHandshake."""


class Empty(TypedDict):
    """No fields."""
