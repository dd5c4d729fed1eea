"""Bounds of the protocol, announced in the handshake (`limits`).

Source: docs/protocol.md, "Limits".
"""

KIB = 1024
MIB = 1024 * 1024

FRAME_BYTES = 8 * MIB
JSON_DEPTH = 64
PROMPT_TEXT_BYTES = 256 * KIB
PROMPT_PARTS = 64
EVENT_PAYLOAD_BYTES = 256 * KIB
ITEM_TEXT_BYTES = 192 * KIB
"""Longer text of an item travels as head + tail + `blobId`."""
BLOB_CHUNK_BYTES = 1 * MIB
BLOB_TOTAL_BYTES = 16 * MIB
REQUESTS_IN = 64
REQUESTS_OUT = 32
ATTACHED_SESSIONS = 64
PENDING_APPROVALS = 32
REPLAY_BYTES = 16 * MIB
REPLAY_PAGE_BYTES = 1 * MIB
BACKLOG_MERGE_BYTES = 1 * MIB
BACKLOG_LAGGED_BYTES = 4 * MIB
BACKLOG_CLOSE_BYTES = 16 * MIB
EVENT_NUMBER_BLOCK = 10_000
"""Numbers reserved on disk before they are used, so that they survive a crash."""
OP_MEMORY_SECONDS = 24 * 3600
OP_MEMORY_COUNT = 10_000
INVALID_ANSWERS = 3
"""Unusable answers to approvals before a client counts as unable to approve."""


def announced() -> dict[str, int]:
    """List the bounds a client may need, by their wire names."""
    return {
        "frameBytes": FRAME_BYTES,
        "jsonDepth": JSON_DEPTH,
        "promptTextBytes": PROMPT_TEXT_BYTES,
        "promptParts": PROMPT_PARTS,
        "eventPayloadBytes": EVENT_PAYLOAD_BYTES,
        "itemTextBytes": ITEM_TEXT_BYTES,
        "blobChunkBytes": BLOB_CHUNK_BYTES,
        "blobTotalBytes": BLOB_TOTAL_BYTES,
        "requestsIn": REQUESTS_IN,
        "requestsOut": REQUESTS_OUT,
        "attachedSessions": ATTACHED_SESSIONS,
        "pendingApprovals": PENDING_APPROVALS,
        "replayBytes": REPLAY_BYTES,
        "backlogLaggedBytes": BACKLOG_LAGGED_BYTES,
        "backlogCloseBytes": BACKLOG_CLOSE_BYTES,
    }
