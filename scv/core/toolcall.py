"""One tool call: look up, validate, judge, ask, check again, run, report.

What was shown is what runs: the call is prepared a second time right before
execution, and another digest means another question.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anyio import CancelScope
from anyio.lowlevel import checkpoint

from scv.core.approval import Answer, ApprovalDesk
from scv.core.digest import call_digest, policy_revision
from scv.core.excerpt import excerpt, shown_arguments
from scv.core.history import Call
from scv.core.policy import judge
from scv.core.ports import PreparedCall, Tool, ToolResult
from scv.core.records import Json, Store
from scv.core.transcript import Transcript
from scv.core.visible import one_line
from scv.errors import BadArguments, NotFound, Stale, StoreError, ToolError
from scv.values import frozen

if TYPE_CHECKING:
    from scv.config.settings import Settings

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
"""Questions for one call whose target keeps changing under the approver."""
OUTPUT_BYTES = 96 * 1024
"""JSON of an output as front ends see it; the model's own limit is in the settings."""
DIFF_BYTES = 64 * 1024


@frozen
class CallContext:
    """What the calls of one turn share."""

    session_id: str
    turn_id: str
    workspace: str
    tools: Mapping[str, Tool]
    settings: Callable[[], Settings]
    """Gives what is configured now, so that a stricter policy counts at once."""
    transcript: Transcript
    desk: ApprovalDesk
    store: Store
    set_state: Callable[[str], None]
    processes: set[int]
    running: dict[str, CancelScope]
    """Scopes of the calls that run now, by item; cancelling one ends that call."""


@frozen
class Finished:
    """What the model reads of a call; `stop` ends the turn."""

    success: bool
    output: str
    stop: bool = False


def parse_arguments(text: str) -> dict[str, Any]:
    """Read the model's argument text; empty text is an empty object.

    Raises:
        BadArguments: Not a JSON object. Nothing is repaired by guessing.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadArguments(
            f"the arguments were not valid JSON ({error}); send one JSON object"
        ) from None
    if not isinstance(value, dict):
        raise BadArguments(
            f"the arguments were a JSON {type(value).__name__}, not an object;"
            " send one JSON object"
        )
    if _has_surrogates(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadArguments(
                "the arguments hold half of a surrogate pair, which is no text"
            ) from None
    return value


def _has_surrogates(text: str) -> bool:
    return "\\u" in text or not text.isascii()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


async def run_call(call: Call, context: CallContext) -> Finished:
    """Carry one call out; its item completes whatever happens.

    Cancelling ends what runs, completes the item as cancelled, and goes on up.
    """
    item = context.transcript.start(
        "tool_call",
        context.turn_id,
        callId=call.call_id,
        name=one_line(call.name, 128),
        arguments=shown_arguments(call.arguments),
    )
    try:
        with CancelScope() as scope:
            context.running[item["id"]] = scope
            return await _attempt(call, item, context)
        return _cancelled(item, context)
    except ToolError as error:
        return _fail(item, context, error.message)
    except StoreError as error:
        return _fail(item, context, f"the question could not be kept: {error.message}")
    except Exception:
        logger.exception("tool %s failed (item %s)", item["name"], item["id"])
        return _fail(item, context, "the tool failed inside SCV; its log says why")
    finally:
        context.running.pop(item["id"], None)
        if item["status"] in ("in_progress", "waiting_approval"):
            context.transcript.complete(
                item,
                "cancelled",
                result={
                    "success": False,
                    "output": "interrupted before it finished",
                    "truncated": False,
                },
            )


def _cancelled(item: Json, context: CallContext) -> Finished:
    text = "cancelled by the user before it finished; go on without it"
    context.transcript.complete(
        item,
        "cancelled",
        result={"success": False, "output": text, "truncated": False},
    )
    return Finished(False, text)


def _fail(item: Json, context: CallContext, message: str) -> Finished:
    text = f"error: {message}"
    context.transcript.complete(
        item,
        "failed",
        result={"success": False, "output": text, "truncated": False},
    )
    return Finished(False, text)


def _deny(item: Json, context: CallContext, message: str, *, stop: bool) -> Finished:
    context.transcript.complete(
        item,
        "denied",
        result={"success": False, "output": message, "truncated": False},
    )
    return Finished(False, message, stop)


async def _attempt(call: Call, item: Json, context: CallContext) -> Finished:
    tool = context.tools.get(call.name)
    if tool is None:
        names = ", ".join(sorted(context.tools)) or "none in this session"
        raise NotFound(f"there is no tool of this name; the tools are: {names}")
    arguments = parse_arguments(call.arguments)
    prepared = await tool.prepare(arguments)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        shown = _shown(prepared)
        item.update(shown)
        digest = _digest(prepared, item, call, context)
        verdict = judge(context.settings().tools.approval_policy, prepared.risk)
        if verdict.action == "deny":
            text = f"denied without a question: {verdict.reason}"
            return _deny(item, context, text, stop=False)
        if verdict.action == "ask":
            answer = await _ask(
                prepared, item, call, context, digest, attempt, verdict.reason, shown
            )
            if answer.outcome == "cancelled":
                await checkpoint()  # the turn's own cancellation arrives here
            if answer.outcome != "allowed":
                text = f"denied: {answer.reason}"
                if answer.feedback:
                    text += f"; they say: {answer.feedback}"
                return _deny(item, context, text, stop=answer.stop)
            again = await tool.prepare(arguments)
            if _digest(again, item, call, context) != digest:
                prepared = again
                continue
            prepared = again
        context.set_state("tools")
        context.transcript.update(item, status="in_progress", **shown)
        try:
            result = await tool.run(prepared, _Progress(item, context))
        finally:
            context.processes.clear()
        return await _complete(item, context, result)
    raise Stale("what this call would change keeps changing; look at it again")


def _shown(prepared: PreparedCall) -> Json:
    """Say what a call will do, in its item."""
    return {
        "arguments": shown_arguments(prepared.arguments),
        "title": one_line(prepared.title, 200),
        "risk": prepared.risk,
    }


def _digest(
    prepared: PreparedCall, item: Json, call: Call, context: CallContext
) -> str:
    policy = {"approval_policy": context.settings().tools.approval_policy}
    return call_digest(
        prepared,
        session_id=context.session_id,
        item_id=item["id"],
        tool=call.name,
        workspace=context.workspace,
        policy_rev=policy_revision(policy),
    )


async def _ask(
    prepared: PreparedCall,
    item: Json,
    call: Call,
    context: CallContext,
    digest: str,
    attempt: int,
    reason: str,
    shown: Json,
) -> Answer:
    def on_open(approval_id: str) -> None:
        context.transcript.update(
            item,
            status="waiting_approval",
            approvalId=approval_id,
            **shown,
        )
        context.set_state("waiting_approval")

    return await context.desk.ask(
        prepared,
        turn_id=context.turn_id,
        item_id=item["id"],
        tool=call.name,
        workspace=context.workspace,
        digest=digest,
        attempt=attempt,
        reason=reason,
        timeout_seconds=context.settings().approvals.timeout_seconds,
        on_open=on_open,
    )


class _Progress:
    """Passes what a running call tells to front ends and to the cancel receipt."""

    def __init__(self, item: Json, context: CallContext) -> None:
        self._item = item
        self._context = context

    def output(self, text: str) -> None:
        self._context.transcript.progress(self._item, text)

    def process(self, pid: int) -> None:
        self._context.processes.add(pid)


async def _complete(item: Json, context: CallContext, result: ToolResult) -> Finished:
    outcome: Json = {
        "success": result.success,
        "output": result.output,
        "truncated": result.truncated,
    }
    output = result.output
    blob_id = await _keep_whole(result, item, context)
    if blob_id is not None:
        outcome["blobId"] = blob_id
        output = with_handle(output, blob_id)
    outcome["output"] = excerpt(output, OUTPUT_BYTES)
    if result.total_bytes is not None:
        outcome["totalBytes"] = result.total_bytes
    if result.diff is not None:
        outcome["diff"] = excerpt(result.diff, DIFF_BYTES)
    item.pop("progress", None)
    context.transcript.complete(
        item, "completed" if result.success else "failed", result=outcome
    )
    return Finished(result.success, output)


async def _keep_whole(
    result: ToolResult, item: Json, context: CallContext
) -> str | None:
    """Store the whole of a cut output; None when there is none, or no room for it.

    The call has had its effect, so a disk that is full must not make a failure of it.
    """
    blob_id = None
    if result.full_output is not None:
        try:
            with CancelScope(shield=True):
                blob_id = await context.store.put_blob(
                    result.full_output, "text/plain; charset=utf-8", context.session_id
                )
        except StoreError as error:
            logger.warning(
                "item %s: its whole output is lost: %s", item["id"], error.message
            )
    return blob_id


def with_handle(output: str, blob_id: str) -> str:
    """Tell the model where the whole of a cut result is."""
    if output.startswith("{") and output.endswith("}") and len(output) > 2:
        return f'{output[:-1]},"handle":"{blob_id}"}}'
    return f"{output}\n[the whole output: read with handle {blob_id}]"
