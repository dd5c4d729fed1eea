"""The server: live sessions, connections, and what they share."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, Event, create_task_group, sleep, wait_readable
from anyio.abc import TaskGroup

from scv.core.ids import new_id, now_ms
from scv.errors import RequestRefused, StoreError
from scv.rpc import ByteStream, Limits, Peer
from scv.server.connection import Connection
from scv.server.courier import Courier
from scv.server.operations import Operations
from scv.server.takeover import finish, finish_interrupted, recovered
from scv.wire.errors import refuse
from scv.wire.limits import EVENT_NUMBER_BLOCK

if TYPE_CHECKING:
    from scv.core.records import Change, Json, SessionRecord, Store
    from scv.core.session import Equip, Session
    from scv.server.board import Board

logger = logging.getLogger(__name__)
PARENT_POLL_SECONDS = 5.0
IDLE_SESSIONS = 64
"""Live sessions that nobody follows and nothing runs in; the next one that becomes
live takes the place of the one unused longest. Each holds a lock file open."""


class Server:
    """Owns every live session of this process, inside `running`.

    `open_store` runs at the first request that needs the store, so that the
    handshake waits for nothing.
    """

    def __init__(
        self,
        *,
        open_store: Callable[[], Awaitable[Store]],
        equip: Equip,
        transport: str,
        environment: Mapping[str, str],
        limits: Limits | None = None,
        find_daemon: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.id = new_id("v")
        self.transport = transport
        self.equip = equip
        self.environment = environment
        self.sessions: dict[str, Session] = {}
        """Live ones, the one used last at the end."""
        self.is_stopping = False
        self.connections: set[Connection] = set()
        self.courier = Courier(self)
        self.operations = Operations()
        self._board: Board | None = None
        self._open_store = open_store
        self._limits = limits
        self._find_daemon = find_daemon
        self._store: Store | None = None
        self._opening: Event | None = None
        self._openings: dict[str, Event] = {}
        self._tasks: TaskGroup

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        """Live for the block; leaving it ends every turn and writes everything."""
        async with create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                with CancelScope(shield=True):
                    await self.close()
                tasks.cancel_scope.cancel()

    # --- connections ---

    async def serve(
        self,
        stream: ByteStream,
        *,
        peer_pid: int | None = None,
        is_delegated: bool = False,
    ) -> int:
        """Serve one front end until it leaves; returns the exit status it asked for.

        `is_delegated` marks one that a tool of this instance has started.
        """
        async with create_task_group() as tasks:
            connection = Connection(
                self, tasks, peer_pid=peer_pid, is_delegated=is_delegated
            )
            connection.peer = Peer(stream, connection, limits=self._limits)
            self.connections.add(connection)
            try:
                await connection.peer.run()
            finally:
                self.connections.discard(connection)
                connection.closed()
                tasks.cancel_scope.cancel()
        return connection.exit_code or 0

    def watch_parent(self, process_id: int, connection: Connection) -> None:
        """Close the connection when the process that started it is gone."""

        async def watch() -> None:
            try:
                await _wait_for_end(process_id)
            except (OverflowError, ValueError):
                return  # the number of no process: there is nothing to watch
            logger.info("process %d is gone, closing", process_id)
            connection.peer.close()

        connection.spawn(watch)

    # --- the store ---

    @property
    def store(self) -> Store:
        """The open store; `ready` comes first."""
        assert self._store is not None
        return self._store

    async def ready(self) -> Store:
        """Open the store once and finish what a dead owner left.

        Raises:
            StoreError: It cannot be opened; the next request tries again.
        """
        while self._store is None:
            if self._opening is not None:
                await self._opening.wait()
                continue
            self._opening = Event()
            try:
                store = await self._open_store()
                try:
                    await finish_interrupted(store)
                except BaseException:
                    with CancelScope(shield=True), suppress(StoreError):
                        await store.aclose()
                    raise
                self._store = store
            finally:
                self._opening.set()
                self._opening = None
        return self._store

    # --- what all front ends see ---

    @property
    def board(self) -> Board:
        """Session rows and attention, told to everybody."""
        if self._board is None:
            from scv.server.board import Board

            self._board = Board(self)
        return self._board

    def tell_row(self, record: SessionRecord) -> None:
        """A session came into the store."""
        self.board.stored(record)

    def tell_removed(self, session_id: str) -> None:
        """A session is gone."""
        self.board.removed(session_id)

    # --- sessions ---

    async def live(self, session_id: str) -> Session:
        """Find a session, taking it over from the store when nobody runs it.

        Raises:
            RequestRefused: 4201 unknown, 4240 another process owns it.
            StoreError: The store failed.
        """
        while True:
            session = self.sessions.get(session_id)
            if session is not None and not session.closed:
                self.sessions[session_id] = self.sessions.pop(session_id)
                return session
            opening = self._openings.get(session_id)
            if opening is None:
                break
            await opening.wait()
        with self._opens(session_id):
            return await self._take_over(session_id)

    async def found(self, session_id: str) -> Session | SessionRecord:
        """Find a session to read, live here or as it is stored; nothing is taken over.

        One that a dead process left is brought to rest; a living one may run it.

        Raises:
            RequestRefused: 4201 unknown.
            StoreError: The store failed.
        """
        while (session := self.sessions.get(session_id)) is None:
            opening = self._openings.get(session_id)
            if opening is None:
                break
            await opening.wait()
        if session is not None:
            return session
        store = await self.ready()
        turn = await store.newest_turn(session_id)
        if turn is not None and turn.status is None:
            if session_id in self._openings or session_id in self.sessions:
                return await self.found(session_id)
            with self._opens(session_id):
                await finish(store, session_id)
        record = await store.session(session_id)
        if record is None:
            raise refuse("session.not_found", "there is no session of this id")
        return record

    @contextmanager
    def _opens(self, session_id: str) -> Iterator[None]:
        """Let others who want the session wait for the end of the block."""
        done = self._openings[session_id] = Event()
        try:
            yield
        finally:
            del self._openings[session_id]
            done.set()

    async def _take_over(self, session_id: str) -> Session:
        from scv.core.records import SessionLocked

        store = await self.ready()
        if await store.session(session_id) is None:
            raise refuse("session.not_found", "there is no session of this id")
        try:
            lock = store.lock_session(session_id)
        except SessionLocked as error:
            raise self._locked(error.pid) from None
        try:
            stored = await recovered(store, session_id)
            assert stored is not None
        except BaseException:
            lock.release()
            raise
        session = self.adopt(
            stored.session,
            lock,
            history=list(stored.history),
            last_turn=stored.turns[-1] if stored.turns else None,
            queue=stored.queue,
        )
        return session

    def _locked(self, pid: int | None) -> RequestRefused:
        if pid is not None and pid == self._find_daemon():
            return refuse(
                "session.locked",
                f"the server of this home (process {pid}) has this session open;"
                " reach it there: scv attach --stdio",
                pid=pid,
                hint="attach",
            )
        return refuse(
            "session.locked",
            f"process {pid} has this session open; use that one, or close it there"
            " first",
            pid=pid,
        )

    def adopt(self, record: SessionRecord, lock: Any, **state: Any) -> Session:
        """Make a session live in this process."""
        from scv.core.session import Session

        self._make_room()
        session = Session(
            record,
            store=self.store,
            lock=lock,
            equip=self.equip,
            asker=self.courier,
            spawn=self._tasks.start_soon,
            changed=self.board.changed,
            environment=state.pop("environment", self.environment),
            **state,
        )
        self.sessions[record.id] = session
        return session

    async def give_up(self, session: Session, *changes: Change) -> None:
        """End a session's turn, put it on disk with `changes`, let others have it.

        Raises:
            StoreError: That could not be kept; the session is given up all the same.
        """
        while (opening := self._openings.get(session.id)) is not None:
            await opening.wait()
        if self.sessions.get(session.id) is not session:
            await self.store.commit(changes)
            return
        with self._opens(session.id), CancelScope(shield=True):
            try:
                await session.close(*changes)
            finally:
                del self.sessions[session.id]

    def _make_room(self) -> None:
        """Give up idle sessions above the limit, those unused longest first."""
        idle = [each for each in self.sessions.values() if self._is_idle(each)]
        for session in idle[: max(0, len(idle) - IDLE_SESSIONS + 1)]:
            self._tasks.start_soon(self._give_up_idle, session)

    async def _give_up_idle(self, session: Session) -> None:
        if self._is_idle(session):  # nobody came for it meanwhile
            await self._give_up_quietly(session)

    async def _give_up_quietly(self, session: Session) -> None:
        try:
            await self.give_up(session)
        except StoreError as error:
            logger.warning("session %s: %s", session.id, error.message)

    def _is_idle(self, session: Session) -> bool:
        return session.turn is None and not any(
            session.id in each.streams for each in self.connections
        )

    async def end_turns(self, reason: str) -> None:
        """Cancel every running turn and wait for its end."""
        async with create_task_group() as tasks:
            for session in list(self.sessions.values()):
                tasks.start_soon(session.end_turn, reason)

    async def stop(self) -> None:
        """Take no new work, and end every turn with the reason `server_stopped`."""
        self.is_stopping = True
        await self.end_turns("server_stopped")

    async def close(self) -> None:
        """End every turn, put everything on disk, close the store."""
        await self.end_turns("client_gone")
        for session in list(self.sessions.values()):
            await self._give_up_quietly(session)
        if self._store is not None:
            await self._store.aclose()


def new_session_record(
    *,
    root: str,
    folders: tuple[str, ...],
    title: str,
    config: Json,
    channel: str | None,
) -> SessionRecord:
    """Build the row of a new session; its first block of numbers is reserved."""
    from scv.core.records import SessionRecord

    now = now_ms()
    return SessionRecord(
        id=new_id("s"),
        title=title,
        root=root,
        folders=folders,
        config=config,
        created_at=now,
        updated_at=now,
        rev=1,
        epoch=new_id("e"),
        last_seq=0,
        ceiling=EVENT_NUMBER_BLOCK,
        channel=channel,
    )


async def _wait_for_end(process_id: int) -> None:
    """Wait until a process is gone; it need not be a child of ours.

    Raises:
        ValueError: No process has such a number.
        OverflowError: The same.
    """
    if process_id <= 0:
        raise ValueError("process numbers are above 0")
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or an old kernel
        while _is_alive(process_id):  # noqa: ASYNC110 - nothing tells of its end
            await sleep(PARENT_POLL_SECONDS)
        return
    try:
        await wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
