"""A front end's side of SCV/1: one method for each request of the table."""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from anyio import create_task_group
from anyio.abc import TaskGroup

from scv import __version__
from scv.client.mirror import Json, Mirror
from scv.client.session import FollowedSession, OnEvents, ignore_events
from scv.errors import ConnectionLost, ProtocolError, UnknownMethod
from scv.rpc import ByteStream, Peer
from scv.wire import PROTOCOL_MAJOR, PROTOCOL_MINOR
from scv.wire.limits import BLOB_CHUNK_BYTES

if TYPE_CHECKING:
    from scv.wire.approval import AnswerAccepted, Approval, ApprovalList
    from scv.wire.blob import BlobSlice
    from scv.wire.lifecycle import ServerHandshake
    from scv.wire.session import (
        ItemPage,
        SearchHits,
        Session,
        SessionList,
        SessionSnapshot,
    )
    from scv.wire.turn import Turn, TurnCancelling, TurnStarted

logger = logging.getLogger(__name__)

OnApproval = Callable[[Json], Awaitable[Json]]
"""Answers one question; cancelled when somebody else answered or the turn ended.

See `scv.client.decision` for the answers.
"""


class Client:
    """An initialised connection. Every act carries an operation id of its own."""

    def __init__(
        self,
        stream: ByteStream,
        tasks: TaskGroup,
        *,
        client_id: str,
        on_approval: OnApproval | None,
    ) -> None:
        self.client_id = client_id
        self.server: ServerHandshake
        self.sessions: dict[str, FollowedSession] = {}
        self._peer = Peer(stream, self)
        self._tasks = tasks
        self._on_approval = on_approval
        self._early: dict[str, list[Json]] = {}
        self._opening = 0
        self._is_leaving = False
        self._has_ended = False

    # --- calls ---

    async def call(self, method: str, params: Json | None = None) -> Any:
        """Make any request.

        Raises:
            RemoteError: The server refused it; `data["code"]` is the stable name.
            ConnectionLost: The server is gone.
        """
        return await self._peer.request(method, params or {})

    async def act(self, method: str, params: Json) -> Any:
        """Make a request that changes something, with a new operation id."""
        return await self.call(method, {"opId": os.urandom(16).hex(), **params})

    async def create_session(
        self,
        root: str,
        *,
        title: str | None = None,
        config: Json | None = None,
        channel: str | None = None,
        environment: dict[str, str] | None = None,
        on_events: OnEvents = ignore_events,
    ) -> FollowedSession:
        """Start a session in a directory and follow it from its first event."""
        params = _given(
            title=title, config=config, channel=channel, environment=environment
        )
        with _Opening(self):
            created = await self.act(
                "scv/session/create", {"workspace": {"root": root}, **params}
            )
            mirror = Mirror(
                created["session"], epoch=created["epoch"], last=created["seq"]
            )
            return self._follow(mirror, on_events)

    async def attach(
        self,
        session_id: str,
        *,
        tail_items: int = 0,
        environment: dict[str, str] | None = None,
        on_events: OnEvents = ignore_events,
    ) -> FollowedSession:
        """Follow an existing session; its newest items are in the mirror."""
        with _Opening(self):
            mirror = await self.load_mirror(
                session_id, tail_items=tail_items, environment=environment
            )
            return self._follow(mirror, on_events)

    async def load_mirror(
        self,
        session_id: str,
        *,
        tail_items: int,
        environment: dict[str, str] | None = None,
    ) -> Mirror:
        """Attach and read the session's state as it is now."""
        tail = {"history": "tail", "tailItems": tail_items} if tail_items else {}
        attached = await self.call(
            "scv/session/attach",
            {"sessionId": session_id, **tail, **_given(environment=environment)},
        )
        mirror = Mirror.of_attached(attached)
        snapshot = await self.get_session(session_id)
        turn = snapshot["turn"]
        mirror.turn = None if turn is None else {**turn}
        return mirror

    async def detach(self, session_id: str) -> None:
        """Stop following; never stops work."""
        self.sessions.pop(session_id, None)
        await self.call("scv/session/detach", {"sessionId": session_id})

    async def get_session(self, session_id: str) -> "SessionSnapshot":
        """Read a session without its history."""
        result: SessionSnapshot = await self.call(
            "scv/session/get", {"sessionId": session_id}
        )
        return result

    async def list_sessions(
        self,
        *,
        workspace: str | None = None,
        query: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> "SessionList":
        """Read one page of sessions, the most recently used first."""
        result: SessionList = await self.call(
            "scv/session/list",
            _given(workspace=workspace, query=query, limit=limit, cursor=cursor),
        )
        return result

    async def search_sessions(self, text: str, *, limit: int = 50) -> "SearchHits":
        """Find text in prompts, answers and titles, the newest first."""
        result: SearchHits = await self.call(
            "scv/session/search", {"text": text, "limit": limit}
        )
        return result

    async def history(
        self,
        session_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> "ItemPage":
        """Read one page of items; the newest without `before` and `after`."""
        result: ItemPage = await self.call(
            "scv/session/history",
            _given(sessionId=session_id, before=before, after=after, limit=limit),
        )
        return result

    async def replay(self, session_id: str, *, epoch: str, after: int) -> Json:
        """Read a piece of the log as one batch."""
        batch: Json = await self.call(
            "scv/session/replay",
            {"sessionId": session_id, "epoch": epoch, "after": after},
        )
        return batch

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        config: Json | None = None,
        if_rev: int | None = None,
    ) -> "Session":
        """Change title, archive mark or configuration."""
        changes = _given(title=title, archived=archived, config=config, ifRev=if_rev)
        result = await self.act(
            "scv/session/update", {"sessionId": session_id, **changes}
        )
        session: Session = result["session"]
        return session

    async def close_session(self, session_id: str, *, mode: str = "cancel") -> None:
        """Free a session's resources; its data stays."""
        self.sessions.pop(session_id, None)
        await self.act("scv/session/close", {"sessionId": session_id, "mode": mode})

    async def fork_session(
        self, session_id: str, *, at_item: str | None = None, title: str | None = None
    ) -> "Session":
        """Copy a session, up to and with an item; files are not changed."""
        params = _given(sessionId=session_id, atItem=at_item, title=title)
        session: Session = (await self.act("scv/session/fork", params))["session"]
        return session

    async def delete_session(self, session_id: str, *, force: bool = False) -> None:
        """Remove a session for good; `force` cancels the turn that runs in it."""
        self.sessions.pop(session_id, None)
        await self.act("scv/session/delete", {"sessionId": session_id, "force": force})

    async def export_session(self, session_id: str) -> bytes:
        """Write a session, with its blobs, as the content of one file."""
        result = await self.call("scv/session/export", {"sessionId": session_id})
        return await self.read_blob(result["blobId"])

    async def import_session(self, data: bytes, *, root: str) -> "Session":
        """Make a new session, working in `root`, of an exported one."""
        blob_id = await self.put_blob(None, data, "application/jsonl")
        result = await self.act(
            "scv/session/import", {"blobId": blob_id, "workspace": {"root": root}}
        )
        session: Session = result["session"]
        return session

    async def start_turn(self, session_id: str, parts: Sequence[Json]) -> "TurnStarted":
        """Give a prompt; answered when it is on disk."""
        result: TurnStarted = await self.act(
            "scv/turn/start", {"sessionId": session_id, "input": list(parts)}
        )
        return result

    async def cancel_turn(
        self, session_id: str, turn_id: str, *, reason: str = ""
    ) -> "TurnCancelling":
        """Stop the named turn and no other; its end follows as an event."""
        params = {"sessionId": session_id, "turnId": turn_id}
        if reason:
            params["reason"] = reason
        result: TurnCancelling = await self.act("scv/turn/cancel", params)
        return result

    async def get_turn(self, session_id: str, turn_id: str) -> "Turn":
        """Read one turn."""
        result = await self.call(
            "scv/turn/get", {"sessionId": session_id, "turnId": turn_id}
        )
        turn: Turn = result["turn"]
        return turn

    async def answer(
        self, approval: "Approval | Json", decision: Json
    ) -> "AnswerAccepted":
        """Answer a question that was not asked on this connection."""
        result: AnswerAccepted = await self.act(
            "scv/approval/answer", {"approvalId": approval["approvalId"], **decision}
        )
        return result

    async def list_approvals(self, session_id: str | None = None) -> "ApprovalList":
        """List open questions, of one session or of all."""
        result: ApprovalList = await self.call(
            "scv/approval/list", _given(sessionId=session_id)
        )
        return result

    async def put_blob(
        self,
        session_id: str | None,
        data: bytes,
        mime_type: str = "application/octet-stream",
    ) -> str:
        """Hand the server bytes for a session; returns their blob id."""
        from base64 import b64encode

        params: Json = {"mimeType": mime_type}
        if session_id is not None:
            params["sessionId"] = session_id
        for start in range(0, max(len(data), 1), BLOB_CHUNK_BYTES):
            end = start + BLOB_CHUNK_BYTES
            chunk = b64encode(data[start:end]).decode()
            stored = await self.act(
                "scv/blob/put", {**params, "data": chunk, "last": end >= len(data)}
            )
            if "uploadId" in stored:
                params["uploadId"] = stored["uploadId"]
        return str(stored["blobId"])

    async def read_blob(self, blob_id: str) -> bytes:
        """Read a whole blob."""
        from base64 import b64decode

        data = bytearray()
        while True:
            part: BlobSlice = await self.call(
                "scv/blob/read", {"blobId": blob_id, "offset": len(data)}
            )
            data += b64decode(part["data"])
            if part["eof"]:
                return bytes(data)

    # --- what the server sends ---

    async def handle_request(self, method: str, params: Any) -> Any:
        """Serve a request of the server."""
        if method != "scv/approval/request":
            raise UnknownMethod(f"unknown method {method[:80]!r}")
        if self._on_approval is None:
            return {"defer": True}
        return await self._on_approval(params)

    def handle_notification(self, method: str, params: Any) -> None:
        """Take a notification; unknown ones are ignored."""
        match method:
            case "scv/session/events":
                session = self.sessions.get(params["sessionId"])
                if session is not None:
                    session.take(params)
                elif self._opening:  # comes before the answer that names it
                    self._early.setdefault(params["sessionId"], []).append(params)
            case "scv/session/lagged":
                session = self.sessions.get(params["sessionId"])
                if session is not None:
                    session.recover()
            case "scv/approval/invalid":
                logger.warning("answer not taken: %s", params.get("reason"))

    def spawn(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task that ends with the connection."""
        self._tasks.start_soon(task)

    def _follow(self, mirror: Mirror, on_events: OnEvents) -> FollowedSession:
        session = FollowedSession(self, mirror, on_events)
        self.sessions[mirror.id] = session
        for batch in self._early.pop(mirror.id, []):
            session.take(batch)
        return session

    async def _run(self) -> None:
        try:
            await self._peer.run()
        finally:
            self._has_ended = True
            for session in self.sessions.values():
                session.lose()
            if self._is_leaving:
                self._tasks.cancel_scope.cancel()

    def _leave(self) -> None:
        """Close the connection; what runs beside it ends when all bytes have left."""
        self._is_leaving = True
        self._peer.close()
        if self._has_ended:
            self._tasks.cancel_scope.cancel()

    async def _initialize(self, params: Json) -> None:
        result = await self._peer.request("initialize", params)
        try:
            self.server = result["capabilities"]["experimental"]["scv"]
        except (KeyError, TypeError):
            raise ProtocolError(
                "the program answers, but it is no SCV server"
            ) from None
        self._peer.notify("initialized", {})

    async def _say_goodbye(self) -> None:
        with suppress(ConnectionLost, ProtocolError):
            await self._peer.request("shutdown")
        self._peer.notify("exit")


class _Opening:
    """Keep events of sessions that are not known yet while one is being opened."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> None:
        self._client._opening += 1

    def __exit__(self, *_: object) -> None:
        self._client._opening -= 1
        if not self._client._opening:
            self._client._early.clear()


@asynccontextmanager
async def connect(
    stream: ByteStream,
    *,
    name: str,
    client_id: str | None = None,
    role: str = "controller",
    on_approval: OnApproval | None = None,
    resume: Sequence[Json] = (),
    process_id: int | None = None,
) -> AsyncIterator[Client]:
    """Speak SCV/1 over a stream for the life of the block.

    Leaving it says good-bye and closes the stream. Without `on_approval` the
    server does not ask this client. With `process_id` the server ends when that
    process does.

    Raises:
        RemoteError: The server refused the handshake.
        ConnectionLost: It closed the stream before it answered.
    """
    handshake: Json = {
        "protocol": {"major": PROTOCOL_MAJOR, "minor": PROTOCOL_MINOR},
        "clientId": client_id or os.urandom(16).hex(),
        "role": role,
        "features": {"events": True, "approvals": on_approval is not None},
        "resume": list(resume),
    }
    failure: Exception | None = None
    async with create_task_group() as tasks:
        client = Client(
            stream, tasks, client_id=handshake["clientId"], on_approval=on_approval
        )
        tasks.start_soon(client._run)
        try:
            await client._initialize(
                {
                    "processId": process_id,
                    "clientInfo": {"name": name, "version": __version__},
                    "capabilities": {"experimental": {"scv": handshake}},
                }
            )
            yield client
            await client._say_goodbye()
        except Exception as error:  # raised outside the group, so it stays itself
            failure = error
        finally:
            client._leave()
    if failure is not None:
        raise failure


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}
