"""The digest that binds an answer to exactly what will run.

Source: docs/protocol.md, "Approvals".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scv.core.ports import PreparedCall


def canonical(value: Any) -> bytes:
    """Encode JSON with sorted keys, no spaces and raw non-ASCII, as UTF-8."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    ).encode("utf-8", "surrogatepass")


def sha256_hex(data: bytes) -> str:
    """Hash bytes; lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def policy_revision(policy: Mapping[str, Any]) -> str:
    """Name the effective policy keys; another value means other questions."""
    return sha256_hex(canonical(dict(policy)))[:16]


def call_digest(
    call: PreparedCall,
    *,
    session_id: str,
    item_id: str,
    tool: str,
    workspace: str,
    policy_rev: str,
) -> str:
    """Digest a call as it stands now; lower-case hex SHA-256."""
    subject: dict[str, Any] = {
        "v": 1,
        "sessionId": session_id,
        "itemId": item_id,
        "tool": tool,
        "arguments": call.arguments,
        "workspace": workspace,
        "targets": [
            {"path": target.path, "baseSha256": target.base_sha256, "mode": target.mode}
            for target in call.targets
        ],
        "policyRev": policy_rev,
    }
    if call.executable is not None:
        subject["executable"] = call.executable
    return sha256_hex(canonical(subject))
