"""One front end: its handshake, its role, the sessions it follows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from anyio.abc import TaskGroup

from scv import __version__
from scv.core.ids import new_id
from scv.core.visible import one_line
from scv.errors import (
    InvalidMessage,
    InvalidParams,
    NotInitialized,
    RequestRefused,
    ScvError,
    UnknownMethod,
)
from scv.server.uploads import Uploads
from scv.wire import PROTOCOL_MAJOR, PROTOCOL_MINOR, limits
from scv.wire.errors import refuse
from scv.wire.schema_hash import SCHEMA_HASH

if TYPE_CHECKING:
    from scv.core.records import Json
    from scv.core.session import Session, Submitter
    from scv.rpc import Peer
    from scv.server.server import Server
    from scv.server.stream import Stream

logger = logging.getLogger(__name__)
FEATURES = ["sessions", "turns", "approvals", "blobs", "schema"]


class Connection:
    """The server's side of one peer. Before `initialize` it can do nothing.

    One that `is_delegated` was started by a tool of this instance: it may work, but
    neither decide nor configure, so that nothing approves itself.
    """

    peer: Peer

    def __init__(
        self,
        server: Server,
        tasks: TaskGroup,
        *,
        peer_pid: int | None,
        is_delegated: bool,
    ) -> None:
        self.id = new_id("n")
        self.server = server
        self.is_delegated = is_delegated
        self.peer_pid = peer_pid
        self.client_id = ""
        self.client_name = "client"
        self.role = "controller"
        self.is_scv = False
        self.features: Json = {}
        self.cannot_approve = False
        self.exit_code: int | None = None
        self.streams: dict[str, Stream] = {}
        self.roles: dict[str, str] = {}
        self.uploads = Uploads()
        self._tasks = tasks
        self._is_initializing = False
        self._is_initialized = False
        self._is_shut_down = False
        self._resume: list[Json] = []

    # --- dispatch ---

    async def handle_request(self, method: str, params: Any) -> Any:
        """Serve one request of the front end."""
        if method == "initialize":
            return await self._initialize(params)
        if not self._is_initialized:
            raise NotInitialized("send `initialize` first")
        if method == "shutdown":
            self._is_shut_down = True
            return None
        if self._is_shut_down:
            raise InvalidMessage("no requests after `shutdown`")
        if not self.is_scv and method.startswith("scv/"):
            raise UnknownMethod(f"unknown method {one_line(method, 80)}")
        from scv.server.handlers import serve

        return await serve(self, method, params)

    def handle_notification(self, method: str, params: Any) -> None:
        """Take one notification; unknown ones are ignored."""
        if method == "exit":
            self.exit_code = 0 if self._is_shut_down else 1
            self.peer.close()
        elif method == "initialized" and self._is_initialized:
            resume, self._resume = self._resume, []
            for point in resume:
                self.spawn(self._resume_stream, point)

    # --- what others ask of it ---

    def spawn(self, task: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run a task that ends with this connection."""

        async def run() -> None:
            try:
                await task(*args)
            except ScvError as error:
                logger.warning("connection %s: %s", self.id, error.message)
            except Exception:  # the server and its other front ends outlive a bug
                logger.exception("connection %s: a task failed", self.id)

        self._tasks.start_soon(run)

    def require_controller(self, session_id: str | None) -> None:
        """Refuse a front end that only reads, everywhere or in this session.

        Raises:
            RequestRefused: 4233.
        """
        role = self.roles.get(session_id, self.role) if session_id else self.role
        if role == "observer":
            raise refuse("role.forbidden", "an observer only reads")

    def require_person(self) -> None:
        """Refuse a front end that a tool has started.

        Raises:
            RequestRefused: 4233.
        """
        if self.is_delegated:
            raise refuse(
                "role.forbidden",
                "a program that a tool of SCV started neither decides nor configures",
            )

    def may_answer(self, session_id: str) -> bool:
        """True when this front end may decide questions of the session now."""
        return (
            session_id in self.streams
            and self.roles.get(session_id) == "controller"
            and bool(self.features.get("approvals"))
            and not self.cannot_approve
            and not self.is_delegated
        )

    def is_live(self, session_id: str) -> bool:
        """True when it has seen every event of the session."""
        stream = self.streams.get(session_id)
        return stream is not None and stream.is_live

    def author(self) -> Json:
        """Name it as the author of an answer."""
        return {"clientId": self.client_id, "name": self.client_name}

    def submitter(self) -> Submitter:
        """Name it as the author of a prompt."""
        from scv.core.session import Submitter

        return Submitter(self.client_id, self.client_name)

    # --- following sessions ---

    def follow(self, session: Session, *, after: int, role: str | None) -> None:
        """Send the session's events after a number, then its open questions."""
        from scv.server.stream import Stream

        if session.closed:
            raise refuse("session.not_found", "the session was closed; attach again")
        was_following = self.unfollow(session.id, announce=False)
        self.require_room()
        role = role if self.role == "controller" and role else self.role
        self.roles[session.id] = role
        session.log.append("client.joined", {**self.author(), "role": role})
        stream = self.streams[session.id] = Stream(
            self.peer,
            session,
            self.server.store,
            after=after,
            on_live=lambda: self._offer_open(session),
            on_behind=lambda stream: self.spawn(stream.catch_up),
        )
        self.spawn(stream.catch_up)
        if was_following:
            self.server.courier.check_attended(session.id)

    def require_room(self) -> None:
        """Refuse to follow one more session than the limit allows.

        Raises:
            RequestRefused: 4262.
        """
        if len(self.streams) >= limits.ATTACHED_SESSIONS:
            raise refuse(
                "limit.count",
                f"a connection follows at most {limits.ATTACHED_SESSIONS} sessions;"
                " detach from one first",
                limit="attachedSessions",
            )

    def unfollow(self, session_id: str, *, announce: bool = True) -> bool:
        """Stop following; never stops work."""
        stream = self.streams.pop(session_id, None)
        if stream is None:
            return False
        stream.stop()
        self.server.courier.take_back(self, session_id)
        role = self.roles.pop(session_id)
        session = self.server.sessions.get(session_id)
        if announce and session is not None and not session.closed:
            session.log.append("client.left", {**self.author(), "role": role})
            self.server.courier.check_attended(session_id)
        return True

    def closed(self) -> None:
        """The front end is gone: follow nothing any more."""
        self.cannot_approve = True
        for session_id in list(self.streams):
            self.unfollow(session_id)

    def _offer_open(self, session: Session) -> None:
        for approval in session.desk.pending():
            self.server.courier.offer_to(self, session.id, approval)

    # --- handshake ---

    async def _initialize(self, params: Any) -> Json:
        if self._is_initialized or self._is_initializing:
            raise InvalidMessage("`initialize` comes once")
        self._is_initializing = True
        try:
            result = await self._greet(params if isinstance(params, dict) else {})
        finally:
            self._is_initializing = False
        self._is_initialized = True
        return result

    async def _greet(self, params: Json) -> Json:
        experimental = _table(_table(params.get("capabilities")).get("experimental"))
        info = _table(params.get("clientInfo"))
        name = info.get("name")
        if isinstance(name, str) and name:
            self.client_name = one_line(name, 64)
        result: Json = {
            "capabilities": {"positionEncoding": "utf-16"},
            "serverInfo": {"name": "scv", "version": __version__},
        }
        if "scv" in experimental:
            handshake = await self._handshake(_table(experimental["scv"]))
            result["capabilities"]["experimental"] = {"scv": handshake}
        process_id = params.get("processId")
        if self.server.transport == "stdio" and type(process_id) is int:
            self.server.watch_parent(process_id, self)  # elsewhere: another host's
        return result

    async def _handshake(self, wanted: Json) -> Json:
        version = _table(wanted.get("protocol"))
        if version.get("major") != PROTOCOL_MAJOR:
            raise _unsupported()
        client_id = wanted.get("clientId")
        if not isinstance(client_id, str) or not 0 < len(client_id) <= 64:
            raise refuse(
                "protocol.unsupported",
                "experimental.scv.clientId must be a text of 1 to 64 characters",
                path="capabilities.experimental.scv.clientId",
                retry=False,
            )
        role = wanted.get("role", "controller")
        if role not in ("controller", "observer"):
            raise InvalidParams(
                "experimental.scv.role must be `controller` or `observer`",
                data={
                    "code": "params.invalid",
                    "retryable": False,
                    "path": "capabilities.experimental.scv.role",
                },
            )
        self.is_scv = True
        self.client_id = client_id
        self.role = role
        self.features = _table(wanted.get("features"))
        points = wanted.get("resume")
        resumed = [
            await self._resume_point(_table(point))
            for point in (points[:64] if isinstance(points, list) else [])
        ]
        return {
            "protocol": {"major": PROTOCOL_MAJOR, "minor": PROTOCOL_MINOR},
            "serverId": self.server.id,
            "build": __version__,
            "transport": self.server.transport,
            "connectionId": self.id,
            "schemaHash": SCHEMA_HASH,
            "features": FEATURES,
            "limits": limits.announced(),
            "resumed": resumed,
        }

    async def _resume_point(self, point: Json) -> Json:
        from scv.server.handlers.reading import resume_status

        status = await resume_status(self.server, point)
        if status["status"] in ("replaying", "current"):
            self._resume.append(point)
        return status

    async def _resume_stream(self, point: Json) -> None:
        try:
            session = await self.server.live(point["sessionId"])
        except RequestRefused as error:
            logger.info("resume: %s", error.message)
            return
        self.follow(session, after=point["after"], role=None)


def _unsupported() -> RequestRefused:
    return refuse(
        "protocol.unsupported",
        f"this server speaks major version {PROTOCOL_MAJOR} of the protocol",
        supported=[PROTOCOL_MAJOR],
        retry=False,
    )


def _table(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
