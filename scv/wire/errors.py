"""Error codes of SCV/1, and the one way to refuse a request.

JSON-RPC and LSP codes keep their meaning; SCV's own are positive, outside the
reserved ranges. `data.code` is the stable name a client tests.
"""

from typing import Any

from scv.errors import RequestRefused

CODES: dict[str, int] = {
    "session.not_found": 4201,
    "object.not_found": 4202,
    "cursor.invalid": 4203,
    "op.conflict": 4204,
    "workspace.invalid": 4230,
    "model.unknown": 4231,
    "transport.unsupported": 4232,
    "role.forbidden": 4233,
    "policy.denied": 4234,
    "session.locked": 4240,
    "session.busy": 4241,
    "rev.conflict": 4242,
    "turn.not_current": 4243,
    "replay.unavailable": 4244,
    "approval.resolved": 4245,
    "approval.digest": 4246,
    "approval.expired": 4247,
    "protocol.unsupported": 4250,
    "draining": 4251,
    "limit.rate": 4260,
    "limit.message": 4261,
    "limit.count": 4262,
    "provider.auth": 4270,
    "provider.unavailable": 4271,
    "provider.limit": 4272,
    "document.stale": 4280,
    "store.failed": 4290,
    "config.invalid": 4291,
}
"""Stable name -> JSON-RPC code."""

MEANINGS: dict[str, str] = {
    "session.not_found": "no session has this id, or it was just closed",
    "object.not_found": "no turn, question, blob or upload has this id",
    "cursor.invalid": "the cursor of a list is not one of this server's",
    "op.conflict": "this client used the operation id for another call",
    "workspace.invalid": "no absolute path of an existing directory",
    "model.unknown": "reserved: no such model",
    "transport.unsupported": "reserved: not on this transport",
    "role.forbidden": "an observer only reads; what a tool started does not decide",
    "policy.denied": "reserved: the policy forbids it",
    "session.locked": "process `pid` runs it; with `hint` attach, the home's server",
    "session.busy": "a turn is running; `turnId` names it",
    "rev.conflict": "`ifRev` is not the revision; `rev` and `session` are current",
    "turn.not_current": "that turn does not run; `turnId` does, or `idle` is true",
    "replay.unavailable": "the log cannot go on from there; attach with `history`",
    "approval.resolved": "decided already: `decision`, `by`, `at`",
    "approval.digest": "the answer is bound to another question than the one shown",
    "approval.expired": "the server that asked is gone; nothing was run",
    "protocol.unsupported": "another major version (`supported`), or no `clientId`",
    "draining": "server or session is closing and takes no new work",
    "limit.rate": "reserved: too many requests in a time",
    "limit.message": "more bytes than `maxBytes`",
    "limit.count": "more at once than the limit that `limit` names",
    "provider.auth": "reserved: the endpoint wants a sign-in",
    "provider.unavailable": "reserved: the endpoint does not answer",
    "provider.limit": "reserved: quota or context",
    "document.stale": "reserved: the document is another version",
    "store.failed": "the session store cannot be opened or written",
    "config.invalid": "the configuration cannot serve the session; `key` names it",
}
"""Stable name -> what happened, and which fields of `data` say more."""

RETRYABLE = frozenset(
    {"limit.rate", "provider.unavailable", "store.failed", "draining"}
)
"""Codes for which the same request may succeed later."""


def refuse(code: str, message: str, **data: Any) -> RequestRefused:
    """Build the error for a request that will not be carried out.

    `data` holds the code's own fields in wire spelling, such as `turnId`.
    """
    return RequestRefused(
        message,
        code=CODES[code],
        data={"code": code, "retryable": code in RETRYABLE, **data},
    )
