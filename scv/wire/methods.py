"""Every method of the protocol, once: direction, params, result."""

from typing import Any, Literal

from scv.values import frozen
from scv.wire import (
    approval,
    attention,
    blob,
    lifecycle,
    queue,
    schema,
    session,
    turn,
    usage,
)


@frozen
class Method:
    """One method. `to` says who receives it; `result` is None for notifications.

    `mutating` requests carry `opId` and are idempotent; `observer` ones are
    open to observers.
    """

    to: Literal["server", "client"]
    params: Any
    result: Any | None
    mutating: bool = False
    observer: bool = False


METHODS: dict[str, Method] = {
    "scv/session/create": Method(
        "server", session.CreateSession, session.SessionCreated, mutating=True
    ),
    "scv/session/get": Method(
        "server", session.GetSession, session.SessionSnapshot, observer=True
    ),
    "scv/session/list": Method(
        "server", session.ListSessions, session.SessionList, observer=True
    ),
    "scv/session/attach": Method(
        "server", session.AttachSession, session.Attached, observer=True
    ),
    "scv/session/detach": Method(
        "server", session.DetachSession, lifecycle.Empty, observer=True
    ),
    "scv/session/replay": Method(
        "server", session.ReplaySession, session.EventBatch, observer=True
    ),
    "scv/session/history": Method(
        "server", session.SessionHistory, session.ItemPage, observer=True
    ),
    "scv/session/update": Method(
        "server", session.UpdateSession, session.SessionUpdated, mutating=True
    ),
    "scv/session/close": Method(
        "server", session.CloseSession, lifecycle.Empty, mutating=True
    ),
    "scv/session/fork": Method(
        "server", session.ForkSession, session.SessionForked, mutating=True
    ),
    "scv/session/rewind": Method(
        "server", session.RewindSession, session.SessionRewound, mutating=True
    ),
    "scv/session/compact": Method(
        "server", session.CompactSession, session.CompactionStarted, mutating=True
    ),
    "scv/session/search": Method(
        "server", session.SearchSessions, session.SearchHits, observer=True
    ),
    "scv/session/delete": Method(
        "server", session.DeleteSession, lifecycle.Empty, mutating=True
    ),
    "scv/session/export": Method(
        "server", session.ExportSession, session.SessionExported
    ),
    "scv/session/import": Method(
        "server", session.ImportSession, session.SessionImported, mutating=True
    ),
    "scv/attention/list": Method(
        "server", attention.ListAttention, attention.AttentionList, observer=True
    ),
    "scv/attention/seen": Method("server", attention.MarkSeen, lifecycle.Empty),
    "scv/attention/changed": Method("client", attention.AttentionChanged, None),
    "scv/sessions/changed": Method("client", session.SessionsChanged, None),
    "scv/usage/get": Method("server", usage.GetUsage, usage.UsageReport, observer=True),
    "scv/turn/start": Method("server", turn.StartTurn, turn.TurnStarted, mutating=True),
    "scv/turn/cancel": Method(
        "server", turn.CancelTurn, turn.TurnCancelling, mutating=True
    ),
    "scv/turn/steer": Method("server", turn.SteerTurn, turn.TurnSteered, mutating=True),
    "scv/turn/steer/retract": Method(
        "server", turn.RetractSteer, turn.SteerRetracted, mutating=True
    ),
    "scv/turn/retry": Method("server", turn.RetryTurn, turn.TurnRetried, mutating=True),
    "scv/tool/cancel": Method(
        "server", turn.CancelTool, lifecycle.Empty, mutating=True
    ),
    "scv/queue/list": Method(
        "server", queue.ListQueue, queue.QueueState, observer=True
    ),
    "scv/queue/add": Method("server", queue.AddEntry, queue.EntryResult, mutating=True),
    "scv/queue/update": Method(
        "server", queue.UpdateEntry, queue.EntryResult, mutating=True
    ),
    "scv/queue/move": Method(
        "server", queue.MoveEntry, queue.QueueRevision, mutating=True
    ),
    "scv/queue/remove": Method(
        "server", queue.RemoveEntry, queue.QueueRevision, mutating=True
    ),
    "scv/queue/clear": Method(
        "server", queue.ClearQueue, queue.QueueRevision, mutating=True
    ),
    "scv/queue/hold": Method("server", queue.HoldQueue, queue.QueueHeld, mutating=True),
    "scv/queue/release": Method(
        "server", queue.ReleaseQueue, queue.QueueHeld, mutating=True
    ),
    "scv/queue/promote": Method(
        "server", queue.PromoteEntry, queue.EntryPromoted, mutating=True
    ),
    "scv/turn/get": Method("server", turn.GetTurn, turn.TurnResult, observer=True),
    "scv/approval/request": Method(
        "client", approval.Approval, approval.Decision | approval.Defer
    ),
    "scv/approval/answer": Method(
        "server", approval.AnswerApproval, approval.AnswerAccepted, mutating=True
    ),
    "scv/approval/list": Method(
        "server", approval.ListApprovals, approval.ApprovalList, observer=True
    ),
    "scv/approval/invalid": Method("client", approval.InvalidAnswer, None),
    "scv/blob/put": Method("server", blob.PutBlob, blob.BlobStored, mutating=True),
    "scv/blob/read": Method("server", blob.ReadBlob, blob.BlobSlice, observer=True),
    "scv/schema/get": Method(
        "server", schema.GetSchema, schema.SchemaBlob, observer=True
    ),
    "scv/session/events": Method("client", session.EventBatch, None),
    "scv/session/lagged": Method("client", session.SessionLagged, None),
}
"""Method name -> what it is. The LSP lifecycle methods keep their LSP meaning."""
