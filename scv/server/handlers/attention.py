"""`scv/attention/*`, `scv/usage/get`, `scv/session/search`."""

from typing import TYPE_CHECKING

from scv.core.records import Json
from scv.core.visible import one_line
from scv.server.handlers.workspace import real_path
from scv.server.paging import decode_cursor, encode_cursor

if TYPE_CHECKING:
    from scv.server.connection import Connection

TOKENS = ("inputTokens", "outputTokens", "cachedTokens", "reasoningTokens")


async def list_attention(connection: "Connection", params: Json) -> Json:
    """List the sessions that want somebody."""
    board = connection.server.board
    return {"rev": board.attention_rev, "entries": await board.attention()}


async def mark_seen(connection: "Connection", params: Json) -> Json:
    """Note that somebody saw a session."""
    session = await connection.server.live(params["sessionId"])
    await session.mark_seen(params["upTo"])
    return {}


async def usage(connection: "Connection", params: Json) -> Json:
    """Sum up tokens of one session, or of all."""
    store = await connection.server.ready()
    since = params.get("since", 0)
    rows: list[Json] = []
    before = None
    while page := await store.sessions(limit=200, before=before):
        before = (page[-1].updated_at, page[-1].id)
        for record in page:
            if params.get("sessionId") not in (None, record.id):
                continue
            turns = [
                turn
                for turn in await store.turns(record.id)
                if (turn.ended_at or turn.started_at) >= since
            ]
            sums = {
                name: sum(turn.usage.get(name, 0) for turn in turns)
                for name in TOKENS
                if any(name in turn.usage for turn in turns)
            }
            rows.append(
                {
                    "sessionId": record.id,
                    "title": record.title,
                    "usage": sums,
                    "turns": len(turns),
                }
            )
    total = {
        name: sum(row["usage"].get(name, 0) for row in rows)
        for name in TOKENS
        if any(name in row["usage"] for row in rows)
    }
    rows.sort(key=lambda row: -sum(row["usage"].values()))
    return {"usage": total, "sessions": rows}


async def search(connection: "Connection", params: Json) -> Json:
    """Find text in prompts, answers and titles."""
    store = await connection.server.ready()
    limit = params.get("limit", 50)
    root = params.get("workspace")
    hits = await store.search(
        params["text"],
        root=real_path(root) if root else None,
        limit=limit,
        before=decode_cursor(params["cursor"]) if "cursor" in params else None,
    )
    rows = []
    for hit in hits:
        row: Json = {
            "sessionId": hit.session_id,
            "snippet": one_line(hit.snippet, 400),
            "at": hit.at,
        }
        if hit.item_id:
            row["itemId"] = hit.item_id
        rows.append(row)
    following = None
    if len(hits) == limit:
        last = hits[-1]
        following = encode_cursor((last.at, f"{last.session_id}/{last.item_id}"))
    return {"hits": rows, "nextCursor": following}
