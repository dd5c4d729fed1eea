"""What one connection may ask of the server's memory, and of one answer."""

import base64
import json
import resource
from dataclasses import replace

import pytest

from scv.core.records import EventRecord
from scv.server.uploads import UPLOADS
from scv.store import open_store
from scv.wire.limits import (
    BLOB_TOTAL_BYTES,
    ENVIRONMENT_BYTES,
    EVENT_PAYLOAD_BYTES,
    ITEM_PAGE_BYTES,
    REPLAY_BYTES,
)
from tests.fakes.model_server import USAGE, completed, delta
from tests.server.kit import ALLOW, Json, Place, Running, Scv, Session, talk

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


def chunk(data: bytes, **more: object) -> Json:
    return {"data": base64.b64encode(data).decode(), "last": False, **more}


async def read_blob(scv: Scv, blob_id: str) -> bytes:
    data = b""
    while True:
        part = await scv.call("blob/read", blobId=blob_id, offset=len(data))
        data += base64.b64decode(part["data"])
        if part["eof"]:
            return data


# --- uploads ---


async def test_all_uploads_of_a_connection_share_one_limit(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        by = {"sessionId": session.id}
        uploads = []
        for _ in range(BLOB_TOTAL_BYTES // MIB // 4):
            begun = await scv.call("blob/put", **chunk(b"x" * MIB), **by)
            uploads.append(begun["uploadId"])
        for upload in uploads:
            for _ in range(3):
                more = chunk(b"x" * MIB, uploadId=upload)
                await scv.call("blob/put", **more, **by)
        over = await scv.refused("blob/put", **chunk(b"y", uploadId=uploads[0]), **by)
        assert over.code == 4261
        assert over.data["maxBytes"] == BLOB_TOTAL_BYTES
        gone = await scv.refused("blob/put", **chunk(b"y", uploadId=uploads[0]), **by)
        assert gone.code == 4202

        done = await scv.call(
            "blob/put", **chunk(b"y", uploadId=uploads[1], last=True), **by
        )
        assert await read_blob(scv, done["blobId"]) == b"x" * 4 * MIB + b"y"


async def test_unfinished_uploads_are_counted(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        by = {"sessionId": session.id}
        begun = [await scv.call("blob/put", **chunk(b""), **by) for _ in range(UPLOADS)]
        refused = await scv.refused("blob/put", **chunk(b""), **by)
        assert refused.code == 4262
        assert refused.data["limit"] == "uploads"

        end = chunk(b"z", uploadId=begun[0]["uploadId"], last=True)
        await scv.call("blob/put", **end, **by)
        await scv.call("blob/put", **chunk(b""), **by)


async def test_data_that_is_no_base64_names_its_field(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        for data in ("é", "a", "a===", "ab c", "\x00", "漢字漢字"):
            error = await scv.refused("blob/put", sessionId=session.id, data=data)
            assert (error.code, error.data["path"]) == (-32602, "data")


def limit_files(running: Running, size: int) -> None:
    """Make every write of the server beyond this size of a file fail."""
    most = resource.RLIM_INFINITY
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (size, most))


async def test_a_chunk_that_was_not_kept_can_be_sent_again(place: Place) -> None:
    running = place.start()
    try:
        async with talk(running) as (scv, _):
            scv.root = place.workspace
            await scv.initialize()
            session = await scv.create()
            by = {"sessionId": session.id}
            begun = await scv.call("blob/put", **chunk(b"one "), **by)
            upload = begun["uploadId"]
            second = chunk(b"two ", uploadId=upload, opId="second", **by)

            limit_files(running, 0)
            failed = await scv.refused("blob/put", **second)
            third = chunk(b"three", uploadId=upload, last=True, opId="third", **by)
            gap = await scv.refused("blob/put", **third)
            limit_files(running, resource.RLIM_INFINITY)
            assert await scv.call("blob/put", **second) == begun
            assert await scv.call("blob/put", **second) == begun
            limit_files(running, 0)
            not_yet = await scv.refused("blob/put", **third)
            limit_files(running, resource.RLIM_INFINITY)
            done = await scv.call("blob/put", **third)

            assert failed.code == gap.code == not_yet.code == 4290
            assert failed.data["retryable"] is True
            assert await read_blob(scv, done["blobId"]) == b"one two three"
            assert await scv.call("blob/put", **third) == done
    finally:
        running.kill()


# --- cursors, lists, environments ---


async def test_a_cursor_with_a_huge_number_is_refused(place: Place) -> None:
    async with place.server() as scv:
        for number in ("9" * 100, str(2**63), str(-(2**63) - 1), "9" * 19):
            cursor = base64.urlsafe_b64encode(f"{number}:s_1".encode()).decode()
            error = await scv.refused("session/list", cursor=cursor)
            assert error.code == 4203


async def test_folders_and_environment_have_limits(place: Place) -> None:
    folders = [str(place.workspace)] * 17
    root = {"root": str(place.workspace)}
    many = {f"NAME_{number}": "" for number in range(513)}
    large = {"NAME": "x" * ENVIRONMENT_BYTES}

    async with place.server() as scv:
        error = await scv.refused(
            "session/create", workspace={**root, "folders": folders}
        )
        assert (error.code, error.data["path"]) == (-32602, "workspace.folders")
        error = await scv.refused("session/create", workspace=root, environment=many)
        assert (error.code, error.data["path"]) == (-32602, "environment")
        error = await scv.refused("session/create", workspace=root, environment=large)
        assert (error.code, error.data["maxBytes"]) == (4261, ENVIRONMENT_BYTES)
        made = await scv.call(
            "session/create",
            workspace={**root, "folders": folders[:16]},
            environment={"NAME": "x" * (ENVIRONMENT_BYTES - 4)},
            attach=False,
        )
        error = await scv.refused(
            "session/attach", sessionId=made["session"]["id"], environment=large
        )
        assert error.code == 4261


# --- answers and events ---


async def long_answers(place: Place, session: Session, count: int) -> None:
    """Give a session answers of 150 KiB each."""
    for number in range(count):
        place.model.say(f"{number:04} " + "x" * 150 * 1024)
        await session.prompt("more")


async def test_items_come_in_answers_of_bounded_size(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        await long_answers(place, session, 30)
        by = {"sessionId": session.id}

        whole = await scv.refused("session/attach", history="full", **by)
        assert whole.code == 4261
        assert "history: tail" in whole.message
        session, attached = await scv.attach(session.id, history="tail", tailItems=200)
        tail = attached["items"]
        assert len(json.dumps(tail)) < ITEM_PAGE_BYTES + 10_000
        assert tail[-1]["text"].startswith("0029 ")
        items = tail
        while True:
            page = await scv.call(
                "session/history", before=items[0]["id"], limit=200, **by
            )
            assert len(json.dumps(page)) < ITEM_PAGE_BYTES + 10_000
            items = page["items"] + items
            if page["prev"] is None:
                break
            assert page["prev"] == items[0]["id"]
        kinds = [item["kind"] for item in items]
        assert kinds.count("user_message") == kinds.count("assistant_message") == 30
        forward = [items[0]]
        while True:
            page = await scv.call(
                "session/history", after=forward[-1]["id"], limit=200, **by
            )
            forward += page["items"]
            if page["next"] is None:
                break
        assert forward == items


async def test_a_return_that_missed_too_much_attaches_anew(place: Place) -> None:
    place.model.say("short")

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()
        known = session.follower
        by = {"sessionId": session.id}
        await scv.call("session/close", mode="cancel", **by)
        await write_events(place, session.id, REPLAY_BYTES + 1)

        by["epoch"] = known.epoch or ""
        for method in ("replay", "attach"):
            error = await scv.refused(f"session/{method}", after=known.last, **by)
            assert error.code == 4244
            assert "history" in error.message
        page = await scv.call("session/replay", after=(known.last or 0) + 2, **by)
        assert page["complete"] is False
        session, attached = await scv.attach(session.id, history="tail")
        assert attached["items"][-1]["text"] == "short"
        await session.works(place.model)
    point = {"sessionId": session.id, "epoch": known.epoch, "after": known.last}
    async with place.server(resume=[point]) as scv:
        (resumed,) = scv.handshake["resumed"]
        assert resumed["status"] == "reset"
        scv.followers.clear()


async def write_events(place: Place, session_id: str, size: int) -> None:
    """Do what another process would: add events of about this size to a session."""
    async with open_store(str(place.home / "state")) as store:
        record = await store.session(session_id)
        assert record is not None
        number = record.last_seq
        while size > 0:
            number += 1
            data = {"rev": 1, "title": "x" * 200 * 1024}
            body = json.dumps({"type": "session.updated", "at": 1, "data": data})
            epoch = record.epoch
            store.enqueue(
                (
                    EventRecord(
                        *(session_id, epoch, number, number),
                        *("session.updated", None, body.encode()),
                    ),
                )
            )
            size -= len(body)
        await store.commit((replace(record, last_seq=number, ceiling=number),))


async def test_a_delta_of_any_length_comes_in_bounded_events(place: Place) -> None:
    text = "".join(f"{number}\x01é" for number in range(60_000))
    place.model.raw(delta(text[:7]), delta(text[7:]), completed(USAGE))

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed"
        deltas = session.follower.of_type("item.delta")
        assert "".join(data["append"] for data in deltas) == text
        sizes = [len(json.dumps(data, ensure_ascii=False)) for data in deltas]
        assert max(sizes) < EVENT_PAYLOAD_BYTES


async def test_no_event_is_larger_than_the_limit(place: Place) -> None:
    place.configure("[context]\nmax_tokens = 2000000")
    edits = [{"old": "x", "new": "\x01", "all": True} for _ in range(3000)]
    for path, content in (("big", "y" * 250_000), ("odd", "\x01" * 40_000)):
        arguments = {"path": path, "content": content, "mode": "create"}
        place.model.call("write", arguments)
    place.model.call("edit", {"path": "big", "edits": edits})
    place.model.call("bash", {"command": "head -c 300000 /dev/zero"})
    place.model.call("bash", "{" + '"' * 250_000)
    place.model.raw(completed(USAGE))

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed", turn
        calls = session.items("tool_call")
        assert len(calls) == 5
        assert calls[0]["arguments"]["path"] == "big"
        sizes = [
            len(json.dumps(e, ensure_ascii=False)) for e in session.follower.events
        ]
        assert max(sizes) < EVENT_PAYLOAD_BYTES
    sent = [json.dumps(request.json) for request in place.model.requests]
    assert "y" * 250_000 in sent[1]  # the model has its own words whole
    assert (place.workspace / "big").read_text() == "y" * 250_000
