"""Prompts that wait, and text for a turn that runs."""

import pytest

from tests.server.kit import ALLOW, HOLD, Json, Place, Session

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leftovers")]


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


async def busy(place: Place, session: Session) -> str:
    """Start a turn that waits for an answer."""
    place.model.call("bash", {"command": "echo ran >> log"})
    turn = await session.start("first")
    await session.scv.question(len(session.scv.questions))
    return turn


async def queue_of(session: Session) -> Json:
    return await session.scv.call("queue/list", sessionId=session.id)


async def test_queued_prompts_run_in_order_after_the_turn(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await busy(place, session)
        for words in ("second", "third"):
            result = await scv.call(
                "turn/start", sessionId=session.id, input=text(words), ifBusy="queue"
            )
            assert result["outcome"] == "queued"
        place.model.say("one")
        place.model.say("two")
        place.model.say("three")
        question = scv.questions[0]
        question.reply(question.decision("once"))

        await session.end(turn)
        await scv.until(lambda: session.texts()[-1:] == ["three"])

        prompts = [item["parts"][0]["text"] for item in session.items("user_message")]
        assert prompts == ["first", "second", "third"]
        assert (await queue_of(session))["entries"] == []


async def test_a_conflict_carries_the_current_entry(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await busy(place, session)
        added = await scv.call("queue/add", sessionId=session.id, input=text("old"))
        entry = added["entry"]
        changed = await scv.call(
            "queue/update",
            sessionId=session.id,
            queueId=entry["queueId"],
            entryRev=1,
            input=text("new"),
        )
        assert changed["entry"]["preview"] == "new"

        stale = await scv.refused(
            "queue/update",
            sessionId=session.id,
            queueId=entry["queueId"],
            entryRev=1,
            input=text("other"),
        )
        assert (stale.code, stale.data["entry"]["preview"]) == (4242, "new")
        behind = await scv.refused("queue/clear", sessionId=session.id, ifRev=0)
        assert (behind.code, behind.data["rev"]) == (4242, changed["rev"])
        gone = await scv.refused("queue/remove", sessionId=session.id, queueId="q_none")
        assert gone.code == 4202

        receipt = (await session.cancel(turn, queue="clear"))["receipt"]
        assert receipt["queued"] == []
        await session.end(turn)
        assert (await queue_of(session))["entries"] == []


async def test_cancel_holds_the_queue_until_it_is_released(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await busy(place, session)
        added = await scv.call("queue/add", sessionId=session.id, input=text("later"))
        receipt = (await session.cancel(turn))["receipt"]
        assert receipt["queueHeld"]
        assert receipt["queued"] == [added["entry"]["queueId"]]
        await session.end(turn)

        queue = await queue_of(session)
        assert queue["held"]
        assert [entry["preview"] for entry in queue["entries"]] == ["later"]
        snapshot = await scv.call("session/get", sessionId=session.id)
        assert snapshot["session"]["state"] == "held"

        place.model.say("done")
        await scv.call("queue/release", sessionId=session.id)
        await scv.until(lambda: session.texts()[-1:] == ["done"])


async def test_a_steer_reaches_the_model_before_its_next_request(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await busy(place, session)
        steered = await scv.call(
            "turn/steer", sessionId=session.id, turnId=turn, input=text("use tabs")
        )
        assert steered["outcome"] == "pending"
        place.model.say("ok")
        question = scv.questions[0]
        question.reply(question.decision("once"))
        await session.end(turn)

        assert session.follower.of_type("steer.delivered")
        last = place.model.requests[-1].json["input"]
        kinds = [item.get("type") or item.get("role") for item in last]
        assert kinds[-2:] == ["function_call_output", "user"]


async def test_a_steer_that_came_too_late_waits_first(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await busy(place, session)
        await scv.call("queue/add", sessionId=session.id, input=text("queued"))
        await scv.call(
            "turn/steer", sessionId=session.id, turnId=turn, input=text("steered")
        )
        taken = await scv.call(
            "turn/steer", sessionId=session.id, turnId=turn, input=text("regretted")
        )
        back = await scv.call(
            "turn/steer/retract", sessionId=session.id, itemId=taken["itemId"]
        )
        assert back == {"retracted": True}
        receipt = (await session.cancel(turn))["receipt"]
        assert len(receipt["steers"]) == 1
        await session.end(turn)

        entries = (await queue_of(session))["entries"]
        assert [entry["preview"] for entry in entries] == ["steered", "queued"]
        late = await scv.refused(
            "turn/steer", sessionId=session.id, turnId=turn, input=text("late")
        )
        assert late.code == 4243


async def test_promote_moves_an_entry_into_the_turn(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await busy(place, session)
        ids = []
        for words in ("a", "b"):
            added = await scv.call("queue/add", sessionId=session.id, input=text(words))
            ids.append(added["entry"]["queueId"])
        head = {"sessionId": session.id, "queueId": ids[1]}
        moved = await scv.call("queue/promote", **head, **{"as": "next"})
        assert moved["outcome"] == "next"
        entries = (await queue_of(session))["entries"]
        assert [entry["preview"] for entry in entries] == ["b", "a"]

        steered = await scv.call("queue/promote", **head, **{"as": "steer"})
        assert steered["outcome"] == "steered"
        place.model.say("ok")
        place.model.say("a is done")
        question = scv.questions[0]
        question.reply(question.decision("once"))
        await session.end(turn)
        assert session.follower.of_type("steer.delivered")
        await scv.until(lambda: session.texts()[-1:] == ["a is done"])


async def test_one_call_is_cancelled_and_the_turn_goes_on(place: Place) -> None:
    place.model.call("bash", {"command": "sleep 600"})
    place.model.say("went on")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.start()
        await session.state(turn, "tools")
        await scv.until(
            lambda: any(
                i["status"] == "in_progress" for i in session.items("tool_call")
            )
        )
        (call,) = session.items("tool_call")
        await scv.call("tool/cancel", sessionId=session.id, itemId=call["id"])

        assert (await session.end(turn))["status"] == "completed"
        assert session.items("tool_call")[0]["status"] == "cancelled"
        assert session.texts() == ["went on"]


async def test_retry_goes_on_without_running_finished_calls_again(place: Place) -> None:
    place.model.call("bash", {"command": "echo ran >> log"})
    place.model.fail(400, {"error": {"message": "no"}})

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.start()
        assert (await session.end(turn))["status"] == "failed"
        place.model.say("finished")
        again = await scv.call("turn/retry", sessionId=session.id, turnId=turn)

        assert (await session.end(again["turnId"]))["status"] == "completed"
    assert (place.workspace / "log").read_text() == "ran\n"


async def test_a_queue_survives_the_server_and_starts_nothing_by_itself(
    place: Place,
) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        await busy(place, session)
        await scv.call("queue/add", sessionId=session.id, input=text("later"))

    async with place.server(HOLD) as scv:
        session, attached = await scv.attach(session.id)
        queue = attached["queue"]
        assert queue["held"]
        assert [entry["preview"] for entry in queue["entries"]] == ["later"]
        place.model.say("now")
        await scv.call("queue/release", sessionId=session.id)
        await scv.until(lambda: session.texts()[-1:] == ["now"])
