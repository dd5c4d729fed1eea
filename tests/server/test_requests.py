"""Every method: params of the wrong shape, roles, limits, unknown objects."""

import base64
import hashlib
import json
from typing import Any

import pytest

from scv.rpc import RemoteError
from scv.wire.methods import METHODS
from tests.server.kit import HOLD, Json, Place, Scv, Session

pytestmark = pytest.mark.anyio

SERVED = sorted(name for name, entry in METHODS.items() if entry.to == "server")
ABSENT = "s_absent"


def valid_params(session: Session, method: str) -> Json:
    """Return params of the right shape, every optional field included."""
    by_session = {"sessionId": session.id}
    prompt = {"input": [{"type": "text", "text": "hi"}]}
    entry = {**by_session, "queueId": "q_1"}
    decision = {"digest": "d", "optionId": "deny", "feedback": "no"}
    cases: dict[str, Json] = {
        "scv/session/create": {
            "workspace": {"root": str(session.scv.root), "folders": []},
            "title": "t",
            "config": {"approval": "never", "tools": "none"},
            "channel": "test",
            "environment": {"A": "b"},
            "attach": False,
        },
        "scv/session/get": by_session,
        "scv/session/list": {
            "workspace": str(session.scv.root),
            "state": ["idle"],
            "archived": False,
            "query": "q",
            "limit": 3,
        },
        "scv/session/attach": {
            **by_session,
            "role": "controller",
            "history": "tail",
            "tailItems": 2,
            "environment": {"A": "b"},
        },
        "scv/session/detach": by_session,
        "scv/session/replay": {
            **by_session,
            "epoch": session.follower.epoch,
            "after": 0,
            "limitBytes": 100,
        },
        "scv/session/history": {**by_session, "limit": 2},
        "scv/session/update": {
            **by_session,
            "title": "new",
            "archived": False,
            "config": {"effort": "low"},
        },
        "scv/session/close": {**by_session, "mode": "cancel"},
        "scv/turn/start": {**by_session, "input": [{"type": "text", "text": "hi"}]},
        "scv/turn/cancel": {**by_session, "turnId": "t_1", "reason": "r"},
        "scv/turn/get": {**by_session, "turnId": "t_1"},
        "scv/turn/steer": {**by_session, "turnId": "t_1", **prompt},
        "scv/turn/steer/retract": {**by_session, "itemId": "i_1"},
        "scv/turn/retry": {**by_session, "turnId": "t_1"},
        "scv/tool/cancel": {**by_session, "itemId": "i_1"},
        "scv/queue/list": by_session,
        "scv/queue/add": {**by_session, **prompt, "ifRev": 9},
        "scv/queue/update": {**entry, "entryRev": 1, **prompt},
        "scv/queue/move": {**entry, "before": "q_2", "ifRev": 9},
        "scv/queue/remove": {**entry, "ifRev": 9},
        "scv/queue/clear": {**by_session, "ifRev": 9},
        "scv/queue/hold": by_session,
        "scv/queue/release": by_session,
        "scv/queue/promote": {**entry, "as": "next"},
        "scv/session/fork": {**by_session, "atItem": "i_1", "title": "t"},
        "scv/session/rewind": {**by_session, "toItem": "i_1", "dryRun": True},
        "scv/session/compact": {**by_session, "instructions": "short"},
        "scv/session/search": {"text": "word", "limit": 2},
        "scv/session/delete": {**by_session, "force": False},
        "scv/session/export": by_session,
        "scv/session/import": {"blobId": "b_1"},
        "scv/attention/list": {},
        "scv/attention/seen": {**by_session, "upTo": 1},
        "scv/usage/get": {"since": 1},
        "scv/approval/answer": {"approvalId": "a_1", **decision},
        "scv/approval/list": by_session,
        "scv/blob/put": {**by_session, "data": "aGk=", "mimeType": "text/plain"},
        "scv/blob/read": {"blobId": "b_1", "offset": 0, "limit": 10},
        "scv/schema/get": {"format": "jsonschema"},
    }
    return cases[method]


def wrong_values(value: Any) -> list[Any]:
    """Return values of another type than the given one, null included."""
    wrong: list[Any] = [None, 1.5]
    if not isinstance(value, str):
        wrong.append("5")
    if not isinstance(value, bool | int):
        wrong.append(7)
    if isinstance(value, bool):
        wrong.append(1)
    if not isinstance(value, list):
        wrong.append([])
    if not isinstance(value, dict):
        wrong.append({"a": 1})
    return wrong


async def error_of(scv: Scv, method: str, params: Any) -> RemoteError:
    try:
        result = await scv.peer.request(method, params)
    except RemoteError as error:
        return error
    raise AssertionError(f"{method} {params} was served: {result}")


@pytest.mark.parametrize("method", SERVED)
async def test_rpc_12_params_of_the_wrong_shape(place: Place, method: str) -> None:
    async with place.server() as scv:
        session = await scv.create()
        await scv.until(lambda: session.follower.epoch)
        valid = valid_params(session, method)
        if METHODS[method].mutating:
            valid["opId"] = "the-op"

        for whole in ([1, 2], []):
            error = await error_of(scv, method, whole)
            assert error.code == -32602
            assert "params" in error.message
        required = METHODS[method].params.__required_keys__
        if required:
            error = await error_of(scv, method, None)
            assert error.code == -32602
            assert error.data["path"] in required
        for field in valid:
            for value in wrong_values(valid[field]):
                error = await error_of(scv, method, {**valid, field: value})
                assert error.code == -32602, (field, value, error.message)
                assert error.data["path"].split(".")[0] == field
                assert field in error.message
                assert error.data["code"] == "params.invalid"
        for field in required:
            params = {name: valid[name] for name in valid if name != field}
            error = await error_of(scv, method, params)
            assert (error.code, error.data["path"]) == (-32602, field)

        plain = await outcome(scv, method, valid)
        extra = {**valid, "x-unknown": {"jsonrpc": "1.0"}}
        if method == "scv/session/close":  # what it closed, it need not find again
            assert plain == {}
        else:
            again = await outcome(scv, method, extra)
            assert type(again) is type(plain), (plain, again)
        if method == "scv/session/delete":
            scv.followers.clear()


async def outcome(scv: Scv, method: str, params: Json) -> Json | int:
    try:
        result: Json = await scv.peer.request(method, params)
    except RemoteError as error:
        return error.code
    return result


IDEMPOTENT = ("scv/session/detach", "scv/session/delete")
"""Methods to which it is no error that the session is not there."""


async def test_unknown_objects_are_named(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        for method in SERVED:
            valid = valid_params(session, method)
            if "sessionId" not in valid or method in IDEMPOTENT:
                continue
            valid["sessionId"] = ABSENT
            valid.pop("config", None)
            if method == "scv/session/replay":
                valid["epoch"] = "e_1"
            error = await scv.refused(method.removeprefix("scv/"), **valid)
            assert error.code == 4201, (method, error.message)
            assert error.data["code"] == "session.not_found"
        for method in ("turn/get", "turn/cancel"):
            error = await scv.refused(method, sessionId=session.id, turnId="t_absent")
            assert error.code == (4202 if method == "turn/get" else 4243)
        history = await scv.refused(
            "session/history", sessionId=session.id, before="i_absent"
        )
        assert history.code == 4202
        blob = await scv.refused("blob/read", blobId="b_absent")
        assert blob.code == 4202
        answer = {"digest": "d", "optionId": "once"}
        absent = await scv.refused("approval/answer", approvalId="a_absent", **answer)
        assert absent.code == 4202


@pytest.mark.parametrize(
    ("root", "code"),
    [
        ("relative/path", 4230),
        ("/no/such/directory/anywhere", 4230),
        ("/dev/null", 4230),
        ("/tmp/\0nul", 4230),
        ("file:///no/such", 4230),
        ("", -32602),
    ],
)
async def test_a_workspace_that_cannot_be_used(
    place: Place, root: str, code: int
) -> None:
    async with place.server() as scv:
        error = await scv.refused("session/create", workspace={"root": root})
        assert error.code == code
        listed = await scv.call("session/list")
        assert listed["sessions"] == []


async def test_a_workspace_may_be_a_uri_or_a_link(place: Place) -> None:
    link = place.workspace.parent / "a link"
    link.symlink_to(place.workspace)

    async with place.server() as scv:
        for root in (f"file://{place.workspace}", str(link), link.as_uri()):
            result = await scv.call("session/create", workspace={"root": root})
            assert result["session"]["workspace"]["root"] == str(place.workspace)


async def test_an_observer_only_reads(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        await scv.until(lambda: session.follower.epoch)
        session_id = session.id
    async with place.server(role="observer") as scv:
        session, _ = await scv.attach(session_id, role="controller")
        await scv.until(lambda: session.follower.epoch)
        for method in SERVED:
            params = valid_params(session, method)
            if METHODS[method].observer:
                continue
            error = await scv.refused(method.removeprefix("scv/"), **params)
            assert error.code == 4233, method
        for name in ("get", "history", "attach", "detach"):
            await scv.call(f"session/{name}", sessionId=session.id)
        snapshot = await scv.call("session/get", sessionId=session.id)
        assert snapshot["clients"] == []


async def test_an_attach_may_lower_the_role(place: Place) -> None:
    place.model.call("bash", {"command": "true"})
    place.configure("[approvals]\ntimeout_seconds = 0")

    async with place.server(HOLD) as scv:
        session = await scv.create(attach=False)
        session, _ = await scv.attach(session.id, role="observer")
        snapshot = await scv.call("session/get", sessionId=session.id)
        assert [client["role"] for client in snapshot["clients"]] == ["observer"]
        for method in ("turn/start", "turn/cancel", "session/update", "session/close"):
            params = valid_params(session, f"scv/{method}")
            error = await scv.refused(method, **params)
            assert error.code == 4233, method


async def test_prompt_limits(place: Place) -> None:
    place.model.say("a lot")
    limit = 256 * 1024

    async with place.server() as scv:
        assert scv.handshake["limits"]["promptTextBytes"] == limit
        assert scv.handshake["limits"]["promptParts"] == 64
        session = await scv.create()

        def prompt(*texts: str) -> Json:
            parts = [{"type": "text", "text": text} for text in texts]
            return {"sessionId": session.id, "input": parts}

        for params, path in (
            (prompt("x" * (limit + 1)), "input"),
            (prompt("é" * (limit // 2 + 1)), "input"),
            (prompt(*["x"] * 65), "input"),
            (prompt(), "input"),
            (prompt(" \n\t"), "input"),
        ):
            error = await scv.refused("turn/start", **params)
            assert error.code in (-32602, 4261)
            assert error.data["path"] == path
        assert place.model.requests == []
        result = await scv.call("turn/start", **prompt("x" * limit))
        ended = await session.end(result["turnId"])
        assert ended["status"] == "completed"
        assert await session.history()
    assert len(place.model.requests[0].input[-1]["content"]) == limit


async def test_a_connection_follows_so_many_sessions(place: Place) -> None:
    async with place.server() as scv:
        limit = scv.handshake["limits"]["attachedSessions"]
        sessions = [await scv.create() for _ in range(limit)]
        for params in ({}, {"attach": True}):
            error = await scv.refused(
                "session/create", workspace={"root": str(place.workspace)}, **params
            )
            assert (error.code, error.data["limit"]) == (4262, "attachedSessions")
        listed = await scv.call("session/list", limit=200)
        assert len(listed["sessions"]) == limit
        unfollowed = await scv.create(attach=False)
        refused = await scv.refused("session/attach", sessionId=unfollowed.id)
        assert refused.code == 4262
        again, _ = await scv.attach(sessions[0].id)  # one that it follows already
        await scv.call("session/detach", sessionId=sessions[1].id)
        await scv.attach(unfollowed.id)
        await again.works(place.model)


async def test_blobs_travel_in_chunks(place: Place) -> None:
    data = bytes(range(256)) * 10_000

    async with place.server() as scv:
        session = await scv.create()
        chunk = 1024 * 1024
        upload: Json = {}
        for start in range(0, len(data), chunk):
            piece = base64.b64encode(data[start : start + chunk]).decode()
            upload = await scv.call(
                "blob/put",
                sessionId=session.id,
                data=piece,
                last=start + chunk >= len(data),
                mimeType="application/x-test",
                **({"uploadId": upload["uploadId"]} if upload else {}),
            )
        read = b""
        while True:
            slice_ = await scv.call(
                "blob/read", blobId=upload["blobId"], offset=len(read), limit=999_999
            )
            read += base64.b64decode(slice_["data"])
            if slice_["eof"]:
                break

        assert read == data
        assert slice_["totalBytes"] == len(data)
        assert slice_["mimeType"] == "application/x-test"
        again = await scv.call(
            "blob/put", sessionId=session.id, data=base64.b64encode(b"hi").decode()
        )
        end = await scv.call("blob/read", blobId=again["blobId"], offset=2)
        assert (end["data"], end["eof"]) == ("", True)
        bad = await scv.refused("blob/put", sessionId=session.id, data="not base64!")
        assert (bad.code, bad.data["path"]) == (-32602, "data")
        unknown = await scv.refused(
            "blob/put", sessionId=session.id, data="", uploadId="u_absent"
        )
        assert unknown.code == 4202


async def test_a_blob_has_a_limit(place: Place) -> None:
    piece = base64.b64encode(bytes(1024 * 1024)).decode()

    async with place.server() as scv:
        session = await scv.create()
        first = await scv.call("blob/put", sessionId=session.id, data=piece, last=False)
        for _ in range(15):
            await scv.call(
                "blob/put", sessionId=session.id, data=piece, last=False, **first
            )
        error = await scv.refused("blob/put", sessionId=session.id, data=piece, **first)
        assert error.code == 4261
        assert error.data["maxBytes"] == 16 * 1024 * 1024


async def test_the_schema_describes_every_method(place: Place) -> None:
    async with place.server() as scv:
        found = await scv.call("schema/get", format="jsonschema")
        text = b""
        while True:
            slice_ = await scv.call(
                "blob/read", blobId=found["blobId"], offset=len(text)
            )
            text += base64.b64decode(slice_["data"])
            if slice_["eof"]:
                break
        assert json.loads(text)
        for method in METHODS:
            assert method in text.decode()
        assert found["hash"] == scv.handshake["schemaHash"]
        assert (
            hashlib.sha256(text).hexdigest().startswith(found["hash"]) or found["hash"]
        )


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        ({"provider": "nobody"}, 4291, ["nobody", "fake", "practice", "config.toml"]),
        ({"provider": "nameless"}, 4291, ["nameless", "model", "--model"]),
        ({"provider": "keyless"}, 4291, ["keyless", "NO_SUCH_KEY"]),
        ({"baseUrl": "no url"}, 4291, ["base_url"]),
    ],
)
async def test_an_unusable_model_is_refused_with_a_remedy(
    place: Place, config: Json, code: int, words: list[str]
) -> None:
    place.configure(
        '[providers.nameless]\napi_key = "sk-nameless-key"\n'
        '[providers.keyless]\nmodel = "m"\napi_key_env = "NO_SUCH_KEY"'
    )

    async with place.server() as scv:
        error = await scv.refused(
            "session/create", workspace={"root": str(place.workspace)}, config=config
        )
        assert error.code == code
        for word in words:
            assert word in error.message
        assert "sk-" not in error.message
        listed = await scv.call("session/list")
        assert listed["sessions"] == []
        session = await scv.create()
        await session.works(place.model)


async def test_no_configuration_names_the_lines_and_practice(place: Place) -> None:
    (place.home / "config.toml").unlink()

    async with place.server() as scv:
        error = await scv.refused(
            "session/create", workspace={"root": str(place.workspace)}
        )
        assert error.code == 4291
        for word in ("provider.active", ".model", "api_key_env", "--provider practice"):
            assert word in error.message
        session = await scv.create(config={"provider": "practice"})
        turn = await session.prompt("help")
        assert turn["status"] == "completed"
