"""Shorten what the model sees: its own summary takes the place of the past.

The whole history stays in the store; only what later requests carry changes,
so a rewind to before the compaction brings everything back.
"""

from collections.abc import Sequence

from scv.core.history import Entry, NoteEntry, SummaryEntry, UserEntry
from scv.core.ports import ModelRequest, ResponseDone, Runtime
from scv.errors import ProviderError

REQUEST = (
    "Summarize this conversation for yourself: it will be all that you remember."
    " Keep goals, decisions, names of files and functions, what was changed, what"
    " was run with its outcome, and what is left to do. Write plain short lines."
)
HEAD = "Summary of the conversation so far:\n"


def visible(history: Sequence[Entry]) -> list[Entry]:
    """What the model sees of a stored history: from the newest summary on."""
    for position in range(len(history) - 1, -1, -1):
        entry = history[position]
        if isinstance(entry, SummaryEntry):
            return [NoteEntry(entry.text), *history[position + 1 :]]
    return list(history)


async def summarize(
    runtime: Runtime, history: Sequence[Entry], instructions: str, session_id: str
) -> tuple[SummaryEntry, ResponseDone]:
    """Ask the session's model for a summary of its history.

    Raises:
        ProviderError: It gave none.
    """
    wanted = f"{REQUEST}\n{instructions}" if instructions else REQUEST
    request = ModelRequest(
        runtime.instructions, (*history, UserEntry(wanted)), (), session_id
    )
    done: ResponseDone | None = None
    async for event in runtime.model.respond(request):
        if isinstance(event, ResponseDone):
            done = event
    if done is None or not done.message.text.strip():
        raise ProviderError("the model gave no summary")
    return SummaryEntry(HEAD + done.message.text.strip()), done
