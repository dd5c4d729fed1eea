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
