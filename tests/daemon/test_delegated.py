"""What a tool has started can work on the socket, but not decide or configure there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.kit import Daemon, environment
from tests.server.kit import HOLD, ROOT, Json, Question, Scv, Session

pytestmark = pytest.mark.anyio

PROGRAM = '''
"""Try to decide a question of another session; write down what came of it."""
import json, os, sys
sys.path.insert(0, sys.argv[1])
from scv.client.blocking import BlockingClient
from scv.errors import ProtocolError
from scv.host.sockets import connect

told = {}
client = BlockingClient(connect(sys.argv[2]), name="intruder", approvals=True)

def attempt(name, call, method, params):
    try:
        told[name] = call(method, params)
    except ProtocolError as error:
        told[name] = error.code

attempt("list", client.request, "scv/approval/list", {"sessionId": sys.argv[3]})
[question] = told["list"]["approvals"]
answer = {"approvalId": question["approvalId"], "digest": question["digest"]}
attempt("answer", client.act, "scv/approval/answer", {**answer, "optionId": "once"})
session = {"sessionId": question["sessionId"]}
config = {"config": {"approval": "never"}}
attempt("config", client.act, "scv/session/update", {**session, **config})
attempt("title", client.act, "scv/session/update", {**session, "title": "renamed"})
variables = {"environment": {"PATH": "/intruder"}}
attempt("attach", client.request, "scv/session/attach", {**session, **variables})
attempt("get", client.request, "scv/session/get", session)
told["asked"] = [
    each for each in client._messages if each.get("method") == "scv/approval/request"
]
with open(sys.argv[4] + ".part", "w") as file:
    json.dump(told, file)
os.rename(sys.argv[4] + ".part", sys.argv[4])
'''
WAYS = {
    "in the foreground": "{command}",
    "in a session of its own": "setsid {command} & wait",
    "as an orphan without variables": (
        "(env -i setsid {command} >/dev/null 2>&1 &); until [ -e {told} ];"
        " do sleep 0.05; done"
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_peer_that_descends_from_a_tool_cannot_answer(
    daemon: Daemon, way: str
) -> None:
    place = daemon.place
    told = place.workspace / "told"
    async with daemon.front_end(HOLD, client_id="person") as person:
        guarded, question = await _open_question(person, daemon)
        program = _program(daemon, guarded, told)
        line = " ".join(program)
        command = WAYS[way].format(command=line, told=told)
        place.model.call("bash", {"command": command})
        place.model.say("tried")
        working = await person.create()
        turn = await working.start()
        allowed = await person.question(1)
        allowed.reply(allowed.decision("once"))
        await working.end(turn)

        outcome: Json = json.loads(told.read_text())
        assert (outcome["answer"], outcome["config"]) == (4233, 4233)
        assert outcome["title"]["session"]["title"] == "renamed"
        assert outcome["asked"] == []
        assert not question.withdrawn
        place.model.say("done")
        question.reply(question.decision("once"))
        session = Session(person, guarded)
        await person.until(lambda: session.follower.ended)
        place.model.call("bash", {"command": "echo $PATH"})
        place.model.say("done")
        turn = await session.start()
        again = await person.question(2)
        again.reply(again.decision("once"))
        await session.end(turn)
        assert len(session.results()) == 2
        assert not any("/intruder" in result for result in session.results())


@pytest.mark.parametrize("is_of_this_home", [True, False])
async def test_the_mark_of_another_process_of_the_home_counts(
    daemon: Daemon, is_of_this_home: bool
) -> None:
    """A tool of `scv exec`, say, which serves itself and is not below this server."""
    told = daemon.place.workspace / "told"
    home = daemon.place.home if is_of_this_home else daemon.place.home / "inner"
    async with daemon.front_end(HOLD, client_id="person") as person:
        guarded, _ = await _open_question(person, daemon)
        subprocess.run(
            _program(daemon, guarded, told),
            env=environment(SCV_PARENT=f"/elsewhere/s_0/bash-0;{home}/s_1/bash-1"),
            check=True,
        )
        outcome = json.loads(told.read_text())

        if is_of_this_home:
            assert (outcome["answer"], outcome["config"]) == (4233, 4233)
        else:
            assert outcome["answer"] == {"accepted": True}
        person.problems.clear()


async def _open_question(person: Scv, daemon: Daemon) -> tuple[str, Question]:
    daemon.place.model.call("bash", {"command": "echo $PATH"})
    session = await person.create()
    await session.start()
    return session.id, await person.question()


def _program(daemon: Daemon, session_id: str, told: Path) -> list[str]:
    path = told.with_name("intruder.py")
    path.write_text(PROGRAM)
    arguments = (ROOT, daemon.path, session_id, told)
    return [sys.executable, "-B", str(path), *map(str, arguments)]
