"""Attention: which sessions want somebody."""

from typing import Literal, TypedDict

from scv.wire.identifiers import Id, Millis, Seq

AttentionKind = Literal["approval", "failed", "finished_unseen", "unattended"]


class AttentionEntry(TypedDict):
    """One session that wants somebody."""

    sessionId: Id
    kind: AttentionKind
    since: Millis
    summary: str
    """The session's title."""


class ListAttention(TypedDict):
    """Ask which sessions want somebody."""


class AttentionList(TypedDict):
    """All of them, the longest waiting first."""

    rev: int
    entries: list[AttentionEntry]


class MarkSeen(TypedDict):
    """Somebody has seen a session up to an event; seen once is seen everywhere."""

    sessionId: Id
    upTo: Seq


class AttentionChanged(TypedDict):
    """Sent to every front end: these want somebody now, those no longer."""

    rev: int
    upsert: list[AttentionEntry]
    removed: list[Id]
