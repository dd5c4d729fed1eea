"""Who did what: rows that outlive sessions, without prompt text or secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scv.core.ids import now_ms
from scv.core.records import AuditRecord

if TYPE_CHECKING:
    from scv.core.records import Json
    from scv.server.connection import Connection

NAMED = ("approvalId", "optionId", "turnId", "itemId", "mode", "archived")
"""Params that a row names as they are."""
AUDITED = frozenset(
    {
        "scv/approval/answer",
        "scv/session/update",
        "scv/session/close",
        "scv/session/rewind",
        "scv/turn/cancel",
        "scv/tool/cancel",
    }
)
"""Requests that leave a row when they have succeeded."""


def audit(
    connection: Connection, action: str, session_id: str | None, detail: Json
) -> AuditRecord:
    """Make a row about a front end's act, as of now."""
    return AuditRecord(
        now_ms(),
        action,
        session_id,
        connection.client_id,
        connection.client_name,
        connection.peer_pid,
        detail,
    )


def of_request(connection: Connection, method: str, params: Json) -> AuditRecord:
    """Make a row about a served request: its ids, and the settings it changed."""
    detail = {name: params[name] for name in NAMED if name in params}
    config = params.get("config", {})
    if config:
        detail["config"] = sorted(config)
    if "approval" in config:
        detail["approval"] = config["approval"]
    return audit(
        connection, method.removeprefix("scv/"), params.get("sessionId"), detail
    )
