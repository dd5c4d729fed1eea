"""`scv approvals`: questions of the running server, seen whole and decided."""

import sys
import time
from typing import TYPE_CHECKING, Any

from scv.cli.arguments import GlobalOptions, UsageError
from scv.cli.embedded import with_running
from scv.cli.sessions import age, short_path, write_json
from scv.client.decision import FEEDBACK_CHARACTERS, decide
from scv.client.inert import inert, inert_line
from scv.errors import ProtocolError, ScvError

if TYPE_CHECKING:
    from scv.client import Client

Json = dict[str, Any]


def show_list(options: GlobalOptions, *, as_json: bool) -> int:
    """Print every open question, oldest first."""

    async def use(client: "Client") -> int:
        waiting = (await client.list_approvals())["approvals"]
        if as_json:
            write_json({"approvals": waiting})
            return 0
        if not waiting:
            sys.stdout.write("No question waits.\n")
        texts = [await _whole_text(client, {**each}) for each in waiting]
        sys.stdout.write("\n".join(texts))
        return 0

    return with_running(options, use)


def answer(
    options: GlobalOptions, approval_id: str, decision: str, *, feedback: str
) -> int:
    """Show a question and decide exactly what was shown.

    Raises:
        UsageError: The decision is none, or the reason too long.
        ScvError: There is no such question, or somebody else decided it.
    """
    if decision not in ("allow", "deny"):
        raise UsageError("the answer is allow or deny.")
    if len(feedback) > FEEDBACK_CHARACTERS:
        raise UsageError(f"--feedback takes {FEEDBACK_CHARACTERS} characters.")

    async def use(client: "Client") -> int:
        found = await _find(client, approval_id)
        if found is None:
            choice: Json = {"optionId": "", "digest": ""}  # decides nothing
            found = {"approvalId": approval_id}
        else:
            sys.stdout.write(await _whole_text(client, found))
            sys.stdout.flush()
            choice = decide(
                found, "allow_once" if decision == "allow" else "deny", feedback
            )
        try:
            await client.answer(found, choice)
        except ProtocolError as error:
            raise ScvError(_refusal(error)) from error
        sys.stdout.write("Allowed once.\n" if decision == "allow" else "Denied.\n")
        return 0

    return with_running(options, use)


async def _find(client: "Client", approval_id: str) -> Json | None:
    """Find an open question by its whole id.

    Ids begin with the time, so the beginning of one could name a question that came
    after the person looked.
    """
    for each in (await client.list_approvals())["approvals"]:
        if each["approvalId"] == approval_id:
            return {**each}
    return None


async def _whole_text(client: "Client", approval: Json) -> str:
    """Write a question out, with all that would run; nothing is cut or wrapped."""
    subject = approval["subject"]
    match subject["type"]:
        case "command":
            body = await _whole(client, subject, "command")
        case "change":
            patches = [
                f"{file['op']} {file['path']}\n{await _whole(client, file, 'patch')}"
                for file in subject["files"]
            ]
            body = "\n".join(patches)
        case "other":
            body = await _whole(client, subject, "text")
        case _:  # of a newer server
            body = approval["summary"]
    place = inert_line(short_path(approval["workspace"]), 200)
    asked = age(time.time() * 1000 - approval["createdAt"])
    lines = [
        f"[{approval['risk']}] {inert_line(approval['title'], 200)}",
        f"  {approval['approvalId']} · asked {asked} · {place}",
        f"  session {approval['sessionId']} · {inert_line(approval['reason'], 200)}",
    ]
    if "timeoutSeconds" in subject:
        lines.append(f"  at most {subject['timeoutSeconds']} s")
    lines += [f"    {line}" for line in inert(body).splitlines()]
    return "".join(f"{line}\n" for line in lines)


async def _whole(client: "Client", part: Json, name: str) -> str:
    if "blobId" not in part:
        return str(part[name])
    return (await client.read_blob(part["blobId"])).decode("utf-8", "replace")


def _refusal(error: ProtocolError) -> str:
    """Say why an answer was not taken; of a late one, who was first and when."""
    data = error.data
    match data.get("code"):
        case "approval.resolved":
            who = (data.get("by") or {}).get("name") or "the server"
            words = f"already {data.get('decision') or 'decided'} by {who}"
            if data.get("at"):
                moment = time.localtime(data["at"] / 1000)
                words += f" at {time.strftime('%Y-%m-%d %H:%M:%S', moment)}"
            return f"too late: {inert_line(words, 300)}."
        case "approval.expired":
            return "the server that asked is gone; nothing was run."
        case "approval.digest":
            return "what would run has changed; see: scv approvals list"
    return error.message
