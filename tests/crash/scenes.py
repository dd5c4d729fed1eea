"""What happens until a server is killed; each scene ends at the point of the kill.

A scene returns what to call the point, or None for the state of the turn.
"""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

from tests.crash.home import Home, Prompt, until
from tests.crash.story import busy, call, say, silence
from tests.server.kit import Scv

Scene = Callable[[Home, Scv], Awaitable[str | None]]


async def prompt_sent(home: Home, scv: Scv) -> str | None:
    """The request is on its way; nobody knows how far it came."""
    session = await home.pick(scv)
    await home.begin(scv, session, [silence(home.teller.gate)], wait=False)
    await anyio.lowlevel.checkpoint()
    return None


async def accepted(home: Home, scv: Scv) -> str | None:
    """The acceptance came as an event; the answer may not be read yet."""
    session = await home.pick(scv)
    prompt = await home.begin(scv, session, [silence(home.teller.gate)], wait=False)
    await home.event(scv, prompt, lambda e: e["type"] == "turn.accepted")
    return "accepted"


async def preparing(home: Home, scv: Scv) -> str | None:
    """The turn prepares its request."""
    session = await home.pick(scv)
    prompt = await home.begin(scv, session, [silence(home.teller.gate)], wait=False)
    await home.state(scv, prompt, "preparing")
    return "preparing"


async def model_silent(home: Home, scv: Scv) -> str | None:
    """The model has the request and says nothing."""
    session = await home.pick(scv)
    asked = anyio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        loop.call_soon_threadsafe(asked.set)

    home.teller.on_asked = tell
    prompt = await home.begin(
        scv, session, [silence(home.teller.gate)], wait=False, held=True
    )
    await home.state(scv, prompt, "model")
    with anyio.fail_after(30):
        await asked.wait()
    home.teller.on_asked = lambda: None
    return None


async def streaming(home: Home, scv: Scv) -> str | None:
    """Some of the text was seen."""
    session = await home.pick(scv)
    pieces = [f"piece {number} " for number in range(home.dice.randint(1, 40))]
    story = [say(*pieces, gate=home.teller.gate)]
    prompt = await home.begin(scv, session, story, held=True)
    seen = home.dice.choice(pieces)
    await home.event(
        scv,
        prompt,
        lambda e: e["type"] == "item.delta" and seen in e["data"]["append"],
    )
    return "model, streaming"


async def retry_wait(home: Home, scv: Scv) -> str | None:
    """The model asked to come again later."""
    session = await home.pick(scv)
    prompt = await home.begin(scv, session, [busy()], held=True)
    await home.event(scv, prompt, lambda e: e["type"] == "retry.scheduled")
    return None


async def waiting_approval(home: Home, scv: Scv) -> str | None:
    """A command waits for its answer."""
    session = await home.pick(scv)
    await _ask(home, scv, session, held=True)
    return None


async def question_kept(home: Home, scv: Scv) -> str | None:
    """A command waits for its answer, and the question is surely on the disk."""
    session = await home.pick(scv)
    await _ask(home, scv, session, held=True)
    await _rename(home, scv, session)
    return "waiting_approval, kept"


async def answer_sent(home: Home, scv: Scv) -> str | None:
    """The yes is on its way."""
    session = await home.pick(scv)
    await _ask(home, scv, session)
    answering = home.click(await home.question(scv))
    home.send(scv, answering)
    await anyio.lowlevel.checkpoint()
    return "answer sent"


async def answer_accepted(home: Home, scv: Scv) -> str | None:
    """The yes is confirmed; the command may or may not have started."""
    session = await home.pick(scv)
    await _ask(home, scv, session)
    answering = home.click(await home.question(scv))
    answering.reply = await scv.call("approval/answer", **answering.params)
    return "answer accepted"


async def denied(home: Home, scv: Scv) -> str | None:
    """The no is seen as an event."""
    scv.answer = home.deny
    session = await home.pick(scv)
    prompt = await _ask(home, scv, session)
    await home.event(scv, prompt, lambda e: e["type"] == "approval.resolved")
    return "denied"


async def tool_runs(home: Home, scv: Scv) -> str | None:
    """A command has done its work and goes on running."""
    scv.answer = home.allow_all
    session = await home.pick(scv)
    tag = home.next_tag()
    held = home.teller.append_and_wait(tag, 1)
    prompt = await home.begin(
        scv, session, [call(tag, 1, held.command)], tag=tag, held=True
    )
    await home.state(scv, prompt, "tools")
    await held.ready.told()
    return None


async def between_tools(home: Home, scv: Scv) -> str | None:
    """One command is done, the model is asked what comes next."""
    scv.answer = home.allow_all
    session = await home.pick(scv)
    tag = home.next_tag()
    story = [
        call(tag, 1, home.teller.append(tag, 1)),
        silence(home.teller.gate),
    ]
    prompt = await home.begin(scv, session, story, tag=tag, held=True)
    await home.event(
        scv,
        prompt,
        lambda e: (
            e["type"] == "item.completed" and e["data"]["item"]["kind"] == "tool_call"
        ),
    )
    return "tool done"


async def cancelling(home: Home, scv: Scv) -> str | None:
    """A command that is deaf to TERM is being cancelled."""
    scv.answer = home.allow_all
    session = await home.pick(scv)
    tag = home.next_tag()
    held = home.teller.append_and_wait(tag, 1, deaf=True)
    prompt = await home.begin(scv, session, [call(tag, 1, held.command)], tag=tag)
    assert prompt.reply is not None
    await held.ready.told()
    await scv.call(
        "turn/cancel", sessionId=session, turnId=prompt.reply["turnId"], reason="enough"
    )
    await home.state(scv, prompt, "cancelling")
    return None


async def ended(home: Home, scv: Scv) -> str | None:
    """The turn's end was seen, nothing more."""
    scv.answer = home.allow_all
    session = await home.pick(scv)
    await home.end(scv, await _ask(home, scv, session))
    return None


async def idle(home: Home, scv: Scv) -> str | None:
    """No turn runs; the newest thing is a new title."""
    session = await home.pick(scv)
    await _rename(home, scv, session)
    return "idle"


async def two_sessions(home: Home, scv: Scv) -> str | None:
    """One session streams while another waits for an answer."""
    first = await home.pick(scv)
    second = await home.create(scv)
    story = [say("one", "two", gate=home.teller.gate)]
    streams = await home.begin(scv, first, story, held=True)
    await _ask(home, scv, second, held=True)
    await home.event(scv, streams, lambda e: e["type"] == "item.delta")
    return "two turns"


async def any_event(home: Home, scv: Scv) -> str | None:
    """A whole turn with two commands, up to an event of random number."""
    scv.answer = home.allow_all
    session = await home.pick(scv)
    prompt = await _ask(home, scv, session, commands=2)
    ledger = home.ledgers[session]
    wanted = len(ledger.events) + home.dice.randint(1, 25)
    await until(
        scv,
        lambda: len(ledger.events) >= wanted or home.is_over(prompt),
    )
    return None


async def until_death(home: Home, scv: Scv) -> str | None:
    """Turn after turn; the server is to die by itself."""
    scv.answer = home.allow_all
    for _ in range(4):
        session = await home.pick(scv)
        await home.end(scv, await _ask(home, scv, session, commands=2))
    return None


async def _rename(home: Home, scv: Scv, session: str) -> None:
    """Change a title; whatever came before it is on the disk with it."""
    title = f"title {home.dice.random()}"
    await scv.call("session/update", sessionId=session, title=title)
    home.titles[session] = title


async def _ask(
    home: Home, scv: Scv, session: str, *, commands: int = 1, held: bool = False
) -> Prompt:
    """Begin a turn that wants to run commands; `held`: and cannot end."""
    tag = home.next_tag()
    story = [
        call(tag, number, home.teller.append(tag, number))
        for number in range(1, commands + 1)
    ]
    before = len(scv.questions)
    prompt = await home.begin(scv, session, story, tag=tag, held=held)
    if held:
        await home.question(scv, before)
    return prompt


SCENES: list[Scene] = [
    prompt_sent,
    accepted,
    preparing,
    model_silent,
    streaming,
    retry_wait,
    waiting_approval,
    question_kept,
    answer_sent,
    answer_accepted,
    denied,
    tool_runs,
    between_tools,
    cancelling,
    ended,
    idle,
    two_sessions,
]
