"""One turn: ask the model, run its calls, until it has nothing more to call.

The turn task is the only writer of its items. Whatever happens inside, it ends
exactly once; text that was shown stays, and every call the model made has
exactly one output before the next request.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from anyio import CancelScope, Event
from anyio.lowlevel import checkpoint

from scv.core.approval import ApprovalDesk
from scv.core.context import ContextLimit, Scale, select, static_tokens
from scv.core.history import AssistantEntry, Call, Entry, NoteEntry, OutputEntry
from scv.core.ids import now_ms
from scv.core.log import EventLog
from scv.core.ports import (
    Model,
    ModelRequest,
    ReasoningDelta,
    ResponseDone,
    RetryScheduled,
    Runtime,
    TextDelta,
    TokenUsage,
)
from scv.core.records import Json, Store
from scv.core.toolcall import CallContext, run_call
from scv.core.transcript import Transcript
from scv.errors import ConfigError, ProviderError, StoreError
from scv.values import frozen
from scv.wire.limits import ITEM_TEXT_BYTES

logger = logging.getLogger(__name__)


@frozen
class TurnEnd:
    """How a turn ended, in wire terms."""

    status: str
    stop_reason: str
    error: Json | None = None


@dataclass(slots=True)
class Turn:
    """A running turn's state.

    `scope` cancels it. `accepted` is set when its prompt is on disk, or, with
    `refused`, when it could not be kept and the turn never was. The first model
    request may overlap with that; `unsaid` are the states it reached meanwhile.
    """

    id: str
    started_at: int
    owner: str | None
    state: str = "accepted"
    scope: CancelScope = field(default_factory=CancelScope)
    accepted: Event = field(default_factory=Event)
    unsaid: list[str] = field(default_factory=list)
    ended: Event = field(default_factory=Event)
    cancel_reason: str | None = None
    usage: Json = field(default_factory=dict)
    end: TurnEnd | None = None
    refused: bool = False
    is_ending: bool = False
    queue_after: str = "hold"
    """What becomes of waiting prompts when it is cancelled or fails."""
    calls: dict[str, CancelScope] = field(default_factory=dict)
    processes: set[int] = field(default_factory=set)

    async def until_kept(self) -> None:
        """Wait until the prompt is on disk: nothing of its turn is written before.

        A turn whose prompt could not be kept is cancelled here.
        """
        await self.accepted.wait()
        while self.refused:
            await checkpoint()


@frozen
class TurnContext:
    """What a turn works with."""

    session_id: str
    workspace: str
    runtime: Callable[[], Runtime]
    """Gives what is configured now: a change counts from the next request on."""
    log: EventLog
    store: Store
    transcript: Transcript
    desk: ApprovalDesk
    scale: Scale
    history: list[Entry]
    remember: Callable[[Entry, str], None]
    set_state: Callable[[Turn, str], None]
    used: Callable[[Turn, TokenUsage | None, int], None]
    deliver: Callable[[Turn], bool]
    """Gives the model what was said meanwhile; False when there was nothing."""


async def run_steps(turn: Turn, context: TurnContext) -> TurnEnd:
    """Run a turn to its end; every foreseen failure is an end, not an exception."""
    unanswered: list[Call] = []
    try:
        return await _steps(turn, context, unanswered)
    except ContextLimit as error:
        return TurnEnd(
            "failed", "context_limit", _error("context_limit", error.message)
        )
    except ProviderError as error:
        detail = _error(error.code, error.message, retryable=error.retryable)
        if error.status is not None:
            detail["providerStatus"] = error.status
        if error.request_id:
            detail["requestId"] = error.request_id
        return TurnEnd("failed", error.code, detail)
    except ConfigError as error:
        return TurnEnd(
            "failed", "config_invalid", _error("config_invalid", error.message)
        )
    except StoreError as error:
        return TurnEnd("failed", "store_failed", _error("store_failed", error.message))
    finally:
        for call in unanswered:
            text = "interrupted: the turn ended before this call finished"
            context.remember(
                OutputEntry(call.call_id, call.name, text, is_error=True), turn.id
            )


def _error(code: str, message: str, *, retryable: bool = False) -> Json:
    return {"code": code, "message": message, "retryable": retryable}


async def _steps(turn: Turn, context: TurnContext, unanswered: list[Call]) -> TurnEnd:
    runtime: Runtime | None = None
    max_steps = context.runtime().settings.agent.max_steps
    for _ in range(max_steps):
        if runtime is not (runtime := context.runtime()):
            settings = runtime.settings
            specs = [tool.spec for _, tool in sorted(runtime.tools.items())]
            static = static_tokens(runtime.instructions, specs, settings.context)
        context.deliver(turn)
        selection = select(
            context.history,
            static=static,
            settings=settings.context,
            scale=context.scale,
        )
        if selection.removed:
            await turn.until_kept()
            context.transcript.add(
                "notice",
                turn.id,
                code="context.reduced",
                message=f"{selection.removed} older messages are left out of this"
                " request and replaced by a short note",
            )
        context.set_state(turn, "model")
        request = ModelRequest(
            runtime.instructions,
            tuple(selection.entries),
            specs,
            context.session_id,
            runtime.effort,
        )
        done = await _respond(turn, context, runtime.model, request)
        context.used(turn, done.usage, selection.after_tokens)
        message = done.message
        context.remember(message, turn.id)
        if done.stop == "end" and not message.calls:
            if context.deliver(turn):
                continue
            return TurnEnd("completed", "end")
        if done.stop != "end":
            end = _cut_short(turn, context, done)
            if end is not None:
                return end
            continue
        unanswered.extend(message.calls)
        context.set_state(turn, "tools")
        for call in message.calls:
            finished = await run_call(call, _call_context(turn, context, runtime))
            context.remember(
                OutputEntry(
                    call.call_id, call.name, finished.output, not finished.success
                ),
                turn.id,
            )
            unanswered.remove(call)
            if finished.stop:
                return TurnEnd("cancelled", "denied_stop")
    return TurnEnd(
        "limited",
        "step_limit",
        _error("step_limit", f"{max_steps} steps without an end"),
    )


def _call_context(turn: Turn, context: TurnContext, runtime: Runtime) -> CallContext:
    return CallContext(
        session_id=context.session_id,
        workspace=context.workspace,
        tools=runtime.tools,
        settings=lambda: context.runtime().settings,
        transcript=context.transcript,
        desk=context.desk,
        store=context.store,
        set_state=lambda state: context.set_state(turn, state),
        turn_id=turn.id,
        processes=turn.processes,
        running=turn.calls,
    )


def _cut_short(turn: Turn, context: TurnContext, done: ResponseDone) -> TurnEnd | None:
    """End the turn after an incomplete response, or tell the model and go on."""
    detail = f": {done.detail}" if done.detail else ""
    if done.stop in ("filter", "refusal"):
        reason = (
            f"a content filter ended the answer{detail}"
            if done.stop == "filter"
            else f"the model refused{detail}"
        )
        _answer_all(done.message, context, turn, reason)
        context.transcript.add("notice", turn.id, code=done.stop, message=reason)
        return TurnEnd(
            "refused", "content_filter" if done.stop == "filter" else "refusal"
        )
    reason = f"the answer was cut at the output limit{detail}"
    context.transcript.add("notice", turn.id, code="output_limit", message=reason)
    if done.message.calls:
        _answer_all(done.message, context, turn, f"not run: {reason}; send it smaller")
        return None
    context.remember(
        NoteEntry(f"Your last answer was cut at the output limit{detail}."), turn.id
    )
    return TurnEnd("limited", "output_limit")


def _answer_all(
    message: AssistantEntry, context: TurnContext, turn: Turn, text: str
) -> None:
    for call in message.calls:
        context.remember(
            OutputEntry(call.call_id, call.name, text, is_error=True), turn.id
        )


async def _respond(
    turn: Turn, context: TurnContext, model: Model, request: ModelRequest
) -> ResponseDone:
    """Stream one response into the transcript."""
    transcript = context.transcript
    items: dict[str, Json] = {}
    done: ResponseDone | None = None
    kept = False
    try:
        async with aclosing(model.respond(request)) as events:
            async for event in events:
                if not kept:
                    await turn.until_kept()
                    kept = True
                if type(event) is TextDelta:
                    item = items.get("assistant_message")
                    if item is None:
                        context.set_state(turn, "model")  # a retry may end here
                        item = items["assistant_message"] = _start(
                            transcript, turn, "assistant_message"
                        )
                    transcript.grow(item, event.text)
                elif type(event) is ReasoningDelta:
                    item = items.get("reasoning")
                    if item is None:
                        context.set_state(turn, "model")
                        item = items["reasoning"] = _start(
                            transcript, turn, "reasoning"
                        )
                    transcript.grow(item, event.text)
                elif type(event) is RetryScheduled:
                    context.set_state(turn, "retry_wait")
                    context.log.append(
                        "retry.scheduled",
                        {
                            "attempt": event.attempt,
                            "delayMs": int(event.delay_seconds * 1000),
                            "reason": event.reason,
                        },
                        turn_id=turn.id,
                    )
                elif type(event) is ResponseDone:
                    done = event
                    break
    finally:
        await _finish_items(turn, context, items, done)
    if done is None:
        raise ProviderError("the model's answer ended without an end mark")
    return done


def _start(transcript: Transcript, turn: Turn, kind: str) -> Json:
    return transcript.start(kind, turn.id, text="", partial=True)


async def _finish_items(
    turn: Turn, context: TurnContext, items: dict[str, Json], done: ResponseDone | None
) -> None:
    transcript = context.transcript
    if done is not None and done.message.text and "assistant_message" not in items:
        items["assistant_message"] = _start(transcript, turn, "assistant_message")
    shown = ""
    for kind in ("reasoning", "assistant_message"):
        item = items.get(kind)
        if item is None:
            continue
        text = transcript.text(item)
        if done is not None and kind == "assistant_message":
            text = done.message.text
        shown = text
        whole = done is not None and done.stop == "end"
        fields = await bounded_text(text, context.store.put_blob, context.session_id)
        transcript.complete(
            item,
            "completed" if whole else _partial_status(turn),
            partial=not whole,
            **fields,
        )
    if done is None and "assistant_message" in items:
        context.remember(AssistantEntry(shown), turn.id)


def _partial_status(turn: Turn) -> str:
    return "cancelled" if turn.cancel_reason else "failed"


async def bounded_text(
    text: str,
    put_blob: Callable[[bytes, str, str], Awaitable[str]],
    session_id: str,
) -> dict[str, Any]:
    """Return `text`, or head + tail + `blobId` when it is above 192 KiB.

    A disk that refuses costs the blob, not the text that was shown.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= ITEM_TEXT_BYTES:
        return {"text": text}
    half = ITEM_TEXT_BYTES // 2
    head = data[:half].decode("utf-8", "ignore")
    tail = data[-half:].decode("utf-8", "ignore")
    left_out = len(data) - 2 * half
    fields = {"text": f"{head}\n[… {left_out} bytes left out …]\n{tail}"}
    try:
        with CancelScope(shield=True):
            fields["blobId"] = await put_blob(
                data, "text/plain; charset=utf-8", session_id
            )
    except StoreError as error:
        logger.warning(
            "session %s: a whole answer is lost: %s", session_id, error.message
        )
    return fields


def duration_ms(turn: Turn) -> int:
    """Milliseconds since the turn started."""
    return max(0, now_ms() - turn.started_at)
