"""Sessions and turns in wire form."""

from scv.core.records import Json, SessionRecord, TurnRecord


def session_view(record: SessionRecord, state: str) -> Json:
    """A session in wire form."""
    workspace: Json = {"root": record.root}
    if record.folders:
        workspace["folders"] = list(record.folders)
    view: Json = {
        "id": record.id,
        "title": record.title,
        "workspace": workspace,
        "state": state,
        "createdAt": record.created_at,
        "updatedAt": record.updated_at,
        "config": record.config,
        "rev": record.rev,
        "epoch": record.epoch,
        "lastSeq": record.last_seq,
        "usage": record.usage,
    }
    if record.archived:
        view["archived"] = True
    if record.parent:
        view["parent"] = record.parent
    if record.channel:
        view["channel"] = record.channel
    return view


def attention_of(
    record: SessionRecord, last_turn: TurnRecord | None
) -> tuple[str, int] | None:
    """Why a resting session wants somebody: what ended was not seen yet."""
    if last_turn is None or record.ended <= record.seen:
        return None
    since = last_turn.ended_at or record.updated_at
    return ("failed" if last_turn.status == "failed" else "finished_unseen"), since


def turn_view(row: TurnRecord) -> Json:
    """A turn in wire form."""
    view: Json = {
        "id": row.id,
        "sessionId": row.session_id,
        "state": row.state,
        "startedAt": row.started_at,
        "usage": row.usage,
    }
    for name, value in (
        ("status", row.status),
        ("stopReason", row.stop_reason),
        ("endedAt", row.ended_at),
        ("error", row.error),
        ("owner", row.owner),
    ):
        if value is not None:
            view[name] = value
    return view
