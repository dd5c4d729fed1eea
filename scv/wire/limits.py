"""Bounds of the protocol, announced in the handshake (`limits`).

Source: docs/protocol.md, "Limits".
"""

KIB = 1024
MIB = 1024 * 1024

FRAME_BYTES = 8 * MIB
"""One frame without its header, in each direction."""
JSON_DEPTH = 64
"""Objects and arrays inside each other."""
PROMPT_TEXT_BYTES = 256 * KIB
"""The text of all parts of a prompt, in UTF-8."""
PROMPT_PARTS = 64
"""Parts of a prompt."""
EVENT_PAYLOAD_BYTES = 256 * KIB
"""Goal for the data of one event; the item of a long prompt is larger."""
ITEM_TEXT_BYTES = 192 * KIB
"""Longer text of an item travels as head + tail + `blobId`."""
BLOB_CHUNK_BYTES = 1 * MIB
"""One chunk of `scv/blob/put` or `scv/blob/read`, before base64."""
BLOB_TOTAL_BYTES = 16 * MIB
"""One uploaded blob."""
UPLOADS = 16
"""Unfinished uploads of one connection; together they hold no more than one blob."""
REQUESTS_IN = 64
"""Requests of one connection that wait for the server at once."""
REQUESTS_OUT = 32
"""Requests of the server that wait for one connection at once."""
CONNECTIONS = 32
"""Connections of one server."""
ATTACHED_SESSIONS = 64
"""Sessions that one connection follows."""
PENDING_APPROVALS = 32
"""Open questions of one session; more are denied."""
QUEUE_ENTRIES = 64
"""Prompts that wait in one session."""
QUEUE_TEXT_BYTES = 4 * MIB
"""Text of all prompts that wait in one session."""
QUEUE_PREVIEW_BYTES = 4 * KIB
"""Text of an entry in `queue.changed`."""
REPLAY_BYTES = 16 * MIB
"""Events that one return to a session may replay; beyond it, attach with `history`."""
REPLAY_PAGE_BYTES = 1 * MIB
"""Events in one answer of `scv/session/replay`."""
ITEM_PAGE_BYTES = 4 * MIB
"""Items in one answer."""
ENVIRONMENT_BYTES = 128 * KIB
"""Names and values of the variables that a front end gives a session."""
BACKLOG_MERGE_BYTES = 1 * MIB
"""Unread bytes of a connection above which its streams stop and catch up later."""
BACKLOG_LAGGED_BYTES = 4 * MIB
"""Events a stopped stream misses before `scv/session/lagged`."""
BACKLOG_CLOSE_BYTES = 16 * MIB
"""Unread bytes above which the connection is closed."""
EVENT_NUMBER_BLOCK = 10_000
"""Numbers reserved on disk before they are used, so that they survive a crash."""
OP_MEMORY_SECONDS = 24 * 3600
"""How long the result of an operation id is kept."""
OP_MEMORY_COUNT = 10_000
"""How many results of operation ids are kept."""
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
        "uploads": UPLOADS,
        "requestsIn": REQUESTS_IN,
        "requestsOut": REQUESTS_OUT,
        "connections": CONNECTIONS,
        "attachedSessions": ATTACHED_SESSIONS,
        "pendingApprovals": PENDING_APPROVALS,
        "queueEntries": QUEUE_ENTRIES,
        "queueTextBytes": QUEUE_TEXT_BYTES,
        "replayBytes": REPLAY_BYTES,
        "itemPageBytes": ITEM_PAGE_BYTES,
        "environmentBytes": ENVIRONMENT_BYTES,
        "backlogLaggedBytes": BACKLOG_LAGGED_BYTES,
        "backlogCloseBytes": BACKLOG_CLOSE_BYTES,
    }
