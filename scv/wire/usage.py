"""Usage: tokens, by session and in all."""

from typing import NotRequired, TypedDict

from scv.wire.identifiers import Id, Millis
from scv.wire.turn import Usage


class GetUsage(TypedDict):
    """Ask for one session, or for all."""

    sessionId: NotRequired[Id]
    since: NotRequired[Millis]
    """Only turns that ended since."""


class SessionUsage(TypedDict):
    """Tokens of one session."""

    sessionId: Id
    title: str
    usage: Usage
    turns: int


class UsageReport(TypedDict):
    """The sum, and what it is made of, most first."""

    usage: Usage
    sessions: list[SessionUsage]
