"""Copies, cuts and summaries of conversations; search; attention; usage."""

import base64

import pytest

from scv.store import open_store
from tests.server.kit import ALLOW, HOLD, Json, Place, Session

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leftovers")]


async def conversation(place: Place, session: Session) -> None:
    """Two turns: one with a call, one of words."""
    place.model.call("bash", {"command": "echo needle"})
    place.model.say("fixLoginPage is done")
    await session.prompt("please fix the login")
    place.model.say("中文搜索可以找到")
    await session.prompt("第二个问题")


def said(request: Json) -> list[str]:
    """The texts of a model request, shortest form."""
    return [
        str(item.get("content") or item.get("output") or item.get("name"))
        for item in request["input"]
    ]


async def test_a_fork_goes_its_own_way(place: Place) -> None:
    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await conversation(place, session)
        items = await session.history()
        forked = await scv.call(
            "session/fork", sessionId=session.id, atItem=items[2]["id"], title="other"
        )
        copy, _ = await scv.attach(forked["session"]["id"])
        assert [item["id"] for item in await copy.history()] == [
            item["id"] for item in items[:3]
        ]
        place.model.say("in the fork")
        await copy.prompt("go on")

        texts = said(place.model.requests[-1].json)
        assert texts[0] == "please fix the login"
        assert "第二个问题" not in texts
        assert texts[-1] == "go on"
        assert len(await session.history()) == len(items)


async def test_a_rewind_starts_an_epoch_and_keeps_the_old_branch(place: Place) -> None:
    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await conversation(place, session)
        items = await session.history()
        epoch = session.follower.epoch
        call = next(item for item in items if item["kind"] == "tool_call")
        plan = await scv.call(
            "session/rewind", sessionId=session.id, toItem=call["id"], dryRun=True
        )
        assert plan == {"plan": {"items": 3, "turns": 1}}
        scv.followers.pop(session.id)
        scv.expect(session.id, after=0)
        done = await scv.call("session/rewind", sessionId=session.id, toItem=call["id"])
        assert done["newEpoch"] != epoch
        await scv.until(lambda: session.follower.of_type("session.reset"))
        kept = await session.history()
        assert [item["id"] for item in kept] == [item["id"] for item in items[:2]]
        old, _ = await scv.attach(done["forkId"])
        assert len(await old.history()) == len(items)

        place.model.say("again")
        await session.prompt("another way")
        texts = said(place.model.requests[-1].json)
        assert texts[0] == "please fix the login"
        assert texts[-1] == "another way"
        assert "第二个问题" not in texts


async def test_compaction_makes_requests_smaller_and_keeps_facts(place: Place) -> None:
    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await conversation(place, session)
        before = len(place.model.requests[-1].body)
        place.model.say("the login is fixed in auth.py")
        turn = await scv.call("session/compact", sessionId=session.id)
        assert (await session.end(turn["turnId"]))["status"] == "completed"
        (item,) = session.items("compaction")
        assert item["afterTokens"] < item["beforeTokens"]

        place.model.say("ok")
        await session.prompt("and now?")
        request = place.model.requests[-1]
        assert len(request.body) < before
        assert "auth.py" in said(request.json)[0]
        assert len(request.json["input"]) == 2

    async with place.server(ALLOW) as scv:
        session, _ = await scv.attach(session.id)
        place.model.say("still ok")
        await session.prompt("after a restart?")
        assert "auth.py" in said(place.model.requests[-1].json)[0]


async def test_search_finds_parts_of_words_and_two_characters(place: Place) -> None:
    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await conversation(place, session)
        for wanted in ("Page", "page", "搜索", "问题"):
            found = await scv.call("session/search", text=wanted)
            assert [hit["sessionId"] for hit in found["hits"]] == [session.id], wanted
            assert wanted.lower() in found["hits"][0]["snippet"].lower()
        assert (await scv.call("session/search", text="absent"))["hits"] == []


async def test_an_export_is_imported_whole(place: Place) -> None:
    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await conversation(place, session)
        exported = await scv.call("session/export", sessionId=session.id)
        part = await scv.call("blob/read", blobId=exported["blobId"])
        assert b'"scvSession": 1' in base64.b64decode(part["data"])
        imported = await scv.call("session/import", blobId=exported["blobId"])
        copy, _ = await scv.attach(imported["session"]["id"])

        assert await copy.history() == await session.history()
        place.model.say("ok")
        await copy.prompt("go on")
        assert said(place.model.requests[-1].json)[0] == "please fix the login"


async def test_delete_is_for_good_and_says_so_once(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        place.model.call("bash", {"command": "true"})
        await session.start()
        await scv.question()
        busy = await scv.refused("session/delete", sessionId=session.id)
        assert busy.code == 4241
        await scv.call("session/delete", sessionId=session.id, force=True)
        scv.followers.pop(session.id)
        gone = await scv.refused("session/get", sessionId=session.id)
        assert gone.code == 4201
        assert await scv.call("session/delete", sessionId=session.id) == {}


async def test_attention_names_what_waits_and_what_ended_unseen(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        place.model.call("bash", {"command": "true"})
        place.model.say("done")
        turn = await session.start()
        question = await scv.question()
        entries = (await scv.call("attention/list"))["entries"]
        assert [entry["kind"] for entry in entries] == ["approval"]
        question.reply(question.decision("deny"))
        await session.end(turn)
        entries = (await scv.call("attention/list"))["entries"]
        assert [entry["kind"] for entry in entries] == ["finished_unseen"]
        await scv.call(
            "attention/seen", sessionId=session.id, upTo=session.follower.last
        )
        assert (await scv.call("attention/list"))["entries"] == []
        report = await scv.call("usage/get")
        assert report["sessions"][0]["turns"] == 1


async def test_the_audit_says_who_answered_configured_and_cancelled(
    place: Place,
) -> None:
    async with place.server(ALLOW) as scv:
        session = await scv.create()
        place.model.call("bash", {"command": "true"})
        place.model.call("bash", {"command": "sleep 600"})
        turn = await session.start("secret words")
        await scv.until(lambda: len(scv.questions) == 2)
        await scv.until(
            lambda: session.items("tool_call")[-1]["status"] == "in_progress"
        )
        await session.cancel(turn)
        await session.end(turn)
        await scv.call(
            "session/update", sessionId=session.id, config={"approval": "never"}
        )

    async with open_store(str(place.home / "state")) as store:
        rows = await store.audit(session_id=session.id)
    acts = [row.action for row in reversed(rows)]
    assert acts == [
        *("approval/answer", "approval/answer", "turn/cancel", "session/update")
    ]
    assert rows[0].detail == {"config": ["approval"], "approval": "never"}
    assert all(row.client_id and row.client_name for row in rows)
    assert "secret" not in str(rows)
