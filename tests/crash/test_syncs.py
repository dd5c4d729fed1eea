"""What is answered, and what runs, is on the disk first: seen by tracing the server.

kill -9 alone would not show this: what a process wrote outlives it even when it was
never synced, because the system still has it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio import fail_after

from tests.crash.servers import start_traced
from tests.server.kit import HOLD, Place, talk

pytestmark = pytest.mark.anyio

SLOW_SYNC = "inject=fsync,fdatasync:delay_enter=100000"
"""A sync takes a tenth of a second, so that whoever does not wait for it is seen."""
CALLS = "trace=fsync,fdatasync,write,writev,pwrite64,pwritev,sendto,sendmsg,execve"
_LINE = re.compile(r"(?P<thread>\d+) +(?P<time>[\d:.]+) (?P<rest>.*)")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_SYNC = re.compile(r"f(?:data)?sync\(\d+<([^>]*)>.*\) += 0")


@dataclass(frozen=True)
class Call:
    """One system call: where in the trace it began, where it ended, and all of it."""

    began: int
    ended: int
    text: str


def read_trace(path: Path) -> list[Call]:
    """Read a trace of several threads; an interrupted line is put together again."""
    open_calls: dict[str, tuple[int, str]] = {}
    calls = []
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines()):
        parts = _LINE.fullmatch(line)
        if parts is None:
            continue
        thread, text, began = parts["thread"], parts["rest"], number
        if text.endswith("<unfinished ...>"):
            open_calls[thread] = (number, text.removesuffix("<unfinished ...>"))
            continue
        resumed = _RESUMED.fullmatch(text)
        if resumed is not None and thread in open_calls:
            began, head = open_calls.pop(thread)
            text = head + resumed[2]
        calls.append(Call(began, number, text))
    calls += [Call(began, began, text) for began, text in open_calls.values()]
    return sorted(calls, key=lambda call: call.began)


def first(calls: list[Call], what: str, find: Callable[[str], bool]) -> Call:
    """Find the first call of a kind."""
    for call in calls:
        if find(call.text):
            return call
    raise AssertionError(f"the trace shows no {what}")


def is_log_write(text: str, mark: str) -> bool:
    """Tell whether a call writes this into the database's log."""
    return text.startswith("pwrite64(") and "sessions.db-wal>" in text and mark in text


def check_synced_between(calls: list[Call], mark: str, then: Call) -> None:
    """Show a finished sync of the log after the last write of the commit of `mark`."""
    commit = first(calls, f"commit of {mark}", lambda text: is_log_write(text, mark))
    assert commit.ended < then.began, f"{then.text[:200]} came before its commit"
    syncs = [
        call
        for call in calls
        if call.began > commit.ended
        and call.ended < then.began
        and (found := _SYNC.match(call.text))
        and found[1].endswith("sessions.db-wal")
    ]
    assert syncs, f"no sync between the commit of {mark} and {then.text[:200]}"


@pytest.mark.needs_program("strace")
async def test_prompt_and_yes_are_synced_before_the_answer_and_the_command(
    place: Place, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    place.model.call("bash", {"command": "echo the-mark > made"})
    place.model.say("done")
    running = start_traced(
        place,
        "-tt",
        "-y",
        *("-s", "100000"),
        *("-e", CALLS),
        *("-e", SLOW_SYNC),
        *("-o", str(trace)),
    )
    try:
        async with talk(running, HOLD) as (scv, _):
            scv.root = place.workspace
            await scv.initialize()
            if "ptrace" in running.stderr():
                pytest.skip("strace may not trace here")
            session = await scv.create()
            turn_id = await session.start("a prompt marked 7f3a", opId="op-marked")
            question = await scv.question()
            approval_id = question.approval["approvalId"]
            await scv.call(
                "approval/answer",
                approvalId=approval_id,
                opId="op-answer",
                **question.decision("once"),
            )
            assert (await session.end(turn_id))["status"] == "completed"
            with fail_after(30):
                await scv.peer.request("shutdown")
                scv.peer.notify("exit")
                await scv.closed.wait()
        assert await running.wait() == 0
    finally:
        running.kill()
    calls = read_trace(trace)

    def replies(mark: str) -> Callable[[str], bool]:
        return lambda text: (
            text.startswith("write(")
            and all(part in text for part in ('\\"id\\":', '\\"result\\":', mark))
        )

    accepted = first(
        calls, "reply to the prompt", replies(f'\\"turnId\\":\\"{turn_id}\\"')
    )
    told = first(calls, "event of the prompt", _writes_event("turn.accepted"))
    for then in (accepted, told):
        check_synced_between(calls, "op-marked", then)
    yes = first(calls, "reply to the yes", replies('\\"accepted\\":true'))
    resolved = first(calls, "event of the yes", _writes_event("approval.resolved"))
    shell = first(calls, "command", lambda text: text.startswith('execve("/bin/bash"'))
    for then in (yes, resolved, shell):
        check_synced_between(calls, "op-answer", then)
    assert (place.workspace / "made").read_text() == "the-mark\n"


def _writes_event(kind: str) -> Callable[[str], bool]:
    mark = f'\\"type\\":\\"{kind}\\"'
    return lambda text: text.startswith("write(") and mark in text


def test_the_check_sees_a_missing_sync(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    commit = '7 10:00:00.1 pwrite64(9</h/sessions.db-wal>, "op-1", 4, 0) = 4'
    reply = '8 10:00:00.4 write(1<pipe:[1]>, "reply", 5) = 5'
    sync = "7 10:00:00.2 fdatasync(9</h/sessions.db-wal>) = 0"
    late = [
        "7 10:00:00.2 fdatasync(9</h/sessions.db-wal> <unfinished ...>",
        reply,
        "7 10:00:00.5 <... fdatasync resumed>) = 0",
    ]
    cases = [
        ([commit, sync, reply], True),
        ([commit, reply, sync], False),
        ([commit, *late], False),
        ([sync, commit, reply], False),
        ([commit, sync.replace("-wal", ""), reply], False),
        ([commit, sync.replace("= 0", "= -1 EIO"), reply], False),
    ]
    for lines, is_synced in cases:
        trace.write_text("\n".join(lines))
        calls = read_trace(trace)
        then = first(calls, "reply", lambda text: "reply" in text)
        if is_synced:
            check_synced_between(calls, "op-1", then)
        else:
            with pytest.raises(AssertionError, match="no sync"):
                check_synced_between(calls, "op-1", then)
