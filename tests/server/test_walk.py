"""A random walk of a front end over two sessions: nothing is lost or doubled."""

import random

import pytest
from anyio import lowlevel

from scv.rpc import RemoteError
from tests.fakes.model_server import (
    HANG,
    RESET,
    USAGE,
    Answer,
    Request,
    Step,
    completed,
    delta,
    done,
    function_call,
    message,
)
from tests.server.kit import Json, Place, Question, Scv, Session

pytestmark = pytest.mark.anyio

ACTIONS = 150


class Model:
    """Answers at random: text, calls, breaks and silences."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._number = 0

    def __call__(self, request: Request) -> Answer:
        self._number += 1
        pieces = [
            f"{self._number}.{n} é " for n in range(self._source.randrange(1, 30))
        ]
        steps: list[Step] = [delta(piece) for piece in pieces]
        text = done(message("".join(pieces)))
        end = self._source.random()
        if end < 0.1:
            steps.append(HANG)
        elif end < 0.2:
            steps.append(RESET)
        elif end < 0.6:
            call = function_call(
                "bash", {"command": f"echo {self._number} >> log"}, f"c{self._number}"
            )
            steps += [text, done(call, 1), completed(USAGE)]
        else:
            steps += [text, completed(USAGE)]
        return Answer(steps)


class Walk:
    """Carries the actions out; `allowed` counts the calls it said yes to."""

    def __init__(self, scv: Scv, sessions: list[Session], seed: int) -> None:
        self.scv = scv
        self.sessions = sessions
        self.running: dict[str, str] = {}
        self.allowed = 0
        self.source = random.Random(seed)

    async def answer(self, question: Question) -> Json:
        for _ in range(self.source.randrange(20)):
            await lowlevel.checkpoint()
        chosen = self.source.choice(["once", "once", "deny", "stop"])
        self.allowed += chosen == "once"
        return question.decision(chosen, feedback="as I please")

    async def step(self) -> None:
        session = self.source.choice(self.sessions)
        action = self.source.choice(
            [self.prompt] * 3
            + [self.reattach] * 3
            + [self.cancel, self.replay, self.look]
        )
        try:
            await action(session)
        except RemoteError as error:
            if error.code not in (4241, 4243):  # busy, or over already
                raise

    async def prompt(self, session: Session) -> None:
        self.running[session.id] = await session.start("go on")

    async def cancel(self, session: Session) -> None:
        if session.id in self.running:
            await session.cancel(self.running[session.id])

    async def reattach(self, session: Session) -> None:
        await self.scv.call("session/detach", sessionId=session.id)
        known = session.follower
        attached, _ = await self.scv.attach(session.id, known=known)
        attached.follower.ended.update(known.ended)

    async def replay(self, session: Session) -> None:
        follower = session.follower
        after, upto = 0, follower.last or 0
        while after < upto:
            page = await self.scv.call(
                "session/replay",
                sessionId=session.id,
                epoch=follower.epoch,
                after=after,
                limitBytes=self.source.choice([1, 500, 100_000]),
            )
            assert page["from"] == after + 1
            after = page["to"]

    async def look(self, session: Session) -> None:
        await session.history()
        await self.scv.call(
            "session/update", sessionId=session.id, title=f"t{self.source.random()}"
        )

    async def rest(self) -> None:
        """Bring every running turn to its end."""
        for session in self.sessions:
            turn = self.running.get(session.id)
            if turn is not None:
                try:
                    await session.cancel(turn)
                except RemoteError as error:
                    assert error.code == 4243  # noqa: PT017
                await session.end(turn)


async def test_a_random_walk_loses_and_doubles_nothing(place: Place, seed: int) -> None:
    place.model.on_request = Model(random.Random(seed + 1))

    async with place.server() as scv:
        sessions = [await scv.create() for _ in range(2)]
        for session in sessions:
            await scv.until(lambda s=session: s.follower.epoch)
        walk = Walk(scv, sessions, seed)
        scv.answer = walk.answer
        for _ in range(ACTIONS):
            await walk.step()
        await walk.rest()

        for session in sessions:
            stored = {item["id"]: item for item in await session.history()}
            assert stored == session.follower.items
        place.model.on_request = None
        await sessions[0].works(place.model)
    log = place.workspace / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    assert len(lines) == len(set(lines)), "a command ran twice"
    assert len(lines) <= walk.allowed
