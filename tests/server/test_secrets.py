"""Keys stay in the server: not in logs, events, state, errors or children."""

import json
import shutil

import pytest

from tests.fakes.model_server import ModelServer
from tests.server.kit import ALLOW, Place

pytestmark = pytest.mark.anyio

SECRET = "sk-TESTSECRET-5f1e9a77c0"


async def test_sec_2_key_with_a_line_end(place: Place) -> None:
    with ModelServer(key=SECRET) as model:
        place.model = model
        place.configure(profile=f'api_key = "{SECRET}\\n"')
        async with place.server(environment={"SCV_LOG": "debug"}) as scv:
            session = await scv.create()
            await session.works(model)
            seen = json.dumps([session.follower.events, await session.history()])
            assert "TESTSECRET" not in seen
        assert "TESTSECRET" not in place.said


@pytest.mark.parametrize("where", ["api_key", "variable", "header"])
async def test_sec_2_key_with_a_line_end_inside(place: Place, where: str) -> None:
    profile = {
        "api_key": 'api_key = "sk-TEST\\nSECRET-abc"',
        "variable": 'api_key_env = "TEST_KEY"',
        "header": 'api_key = "sk-a"\nheaders = { "x-key" = "sk-TEST\\nSECRET-a" }',
    }[where]
    place.configure(profile=profile)
    loud = {"SCV_LOG": "debug", "TEST_KEY": "sk-TEST\nSECRET-abc"}

    async with place.server(environment=loud) as scv:
        error = await scv.refused(
            "session/create", workspace={"root": str(place.workspace)}
        )
        assert error.code == 4291
        assert "SECRET" not in error.message + json.dumps(error.data)
    assert "SECRET" not in place.said
    assert place.model.requests == []


@pytest.mark.parametrize("scheme", ["Bearer", "Basic", "Token"])
async def test_sec_3_authorization_in_debug_logs(place: Place, scheme: str) -> None:
    key = place.model.key
    headers = f'"x-authorization" = "{scheme} {SECRET}", "x-api-key" = "{SECRET}"'
    place.configure(profile=f'api_key = "{key}"\nheaders = {{ {headers} }}')
    place.model.call("bash", {"command": "echo hi"})
    place.model.say("ok")
    loud = {"SCV_LOG": "debug", "HTTPX_LOG_LEVEL": "trace", "PYTHONDEVMODE": "1"}

    async with place.server(ALLOW, environment=loud) as scv:
        session = await scv.create()
        await session.prompt()
        place.model.fail(400, {"error": {"message": f"bad header {SECRET} {key}"}})
        turn = await session.prompt("again")
        assert turn["status"] == "failed"
        seen = json.dumps([session.follower.events, await session.history()])
        assert SECRET not in seen
        assert key not in seen
    assert place.model.requests[0].headers["x-api-key"] == SECRET
    assert SECRET not in place.said
    assert key not in place.said
    for path in place.home.rglob("state/**/*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes()
            assert key.encode() not in path.read_bytes()


async def test_sec_4_loose_permissions_on_the_users_config(place: Place) -> None:
    config = place.home / "config.toml"
    config.chmod(0o644)

    async with place.server() as scv:
        error = await scv.refused(
            "session/create", workspace={"root": str(place.workspace)}
        )
        assert error.code == 4291
        assert "chmod 600" in error.message
        assert place.model.key not in error.message
        config.chmod(0o600)
        session = await scv.create()
        await session.works(place.model)


async def test_sec_6_broken_configuration(place: Place) -> None:
    cases = {
        '[tools]\napproval_policy = "on-risk': ["config.toml:2"],
        '[tools]\napproval_policy = "sometimes"': ["config.toml", "approval_policy"],
        "[tools]\noutput_limit_bytes = '5'": ["config.toml", "output_limit_bytes"],
        "[tools]\naproval_policy = 'never'": ["aproval_policy", "approval_policy"],
        "[provider_limits]\nmax_retries = -1": ["max_retries"],
    }

    async with place.server() as scv:
        for text, words in cases.items():
            place.write_config(text)
            error = await scv.refused(
                "session/create", workspace={"root": str(place.workspace)}
            )
            assert error.code == 4291
            for word in words:
                assert word in error.message, (text, error.message)
        place.configure()
        session = await scv.create()
        await session.works(place.model)


async def test_sec_7_stored_key_in_the_child_environment(place: Place) -> None:
    key = place.model.key
    look = (
        "env; echo; cat /proc/$PPID/environ | tr '\\0' '\\n';"
        " cat /proc/$PPID/cmdline | tr '\\0' ' '; tr '\\0' ' ' </proc/self/cmdline"
    )
    place.model.call("bash", {"command": look})
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await session.prompt()

        (output,) = session.results()
        assert "PATH=" in output
        assert key not in output
        assert key not in json.dumps(session.follower.events)


async def test_bash_7_workspace_removed(place: Place) -> None:
    shutil.rmtree(place.workspace)
    place.workspace.mkdir()
    place.model.call("list", {})
    place.model.say("ok")
    calls = [
        ("bash", {"command": "pwd"}),
        ("read", {"path": "a"}),
        ("write", {"path": "a", "content": "x", "mode": "create"}),
        ("edit", {"path": "a", "edits": [{"old": "a", "new": "b"}]}),
        ("list", {}),
        ("search", {"pattern": "a"}),
    ]

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await session.prompt()
        place.workspace.rmdir()
        place.model.calls(*calls)
        place.model.say("gone")
        turn = await session.prompt("and now")

        assert turn["status"] == "completed"
        assert [i["status"] for i in session.items("tool_call")[1:]] == ["failed"] * 6
        for text in session.results()[1:]:
            assert "does not exist" in text or "no such" in text.lower(), text
            assert "inside SCV" not in text
        assert not place.workspace.exists()

        place.workspace.mkdir()
        (place.workspace / "a").write_text("a\n")
        place.model.calls(calls[0], calls[1], calls[4], calls[5])
        place.model.say("back")
        turn = await session.prompt("once more")
        assert turn["status"] == "completed"
        assert [i["status"] for i in session.items("tool_call")[7:]] == [
            "completed"
        ] * 4


async def test_commands_run_with_the_front_ends_environment(place: Place) -> None:
    look = {"command": "echo first:$PLACE; echo $SECOND"}
    for _ in range(3):
        place.model.call("bash", look)
        place.model.say("ok")
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(place.home.parent)}

    async with place.server(ALLOW) as scv:
        session = await scv.create(environment={**variables, "PLACE": "here"})
        await session.prompt()
        await scv.call("session/detach", sessionId=session.id)
        known = session.follower
        session, _ = await scv.attach(
            session.id, environment={**variables, "PLACE": "there"}
        )
        await session.prompt("again")

        assert "first:here" in json.dumps(known.items)
        assert "first:there" in session.results()[-1]
        seen = json.dumps([known.events, session.follower.events])
        assert "PLACE" not in seen.replace("$PLACE", "")
    async with place.server(ALLOW) as scv:
        session, _ = await scv.attach(session.id)
        await session.prompt("in memory only")
        assert "there" not in session.results()[-1]
        assert "here" not in session.results()[-1]
