"""Joins the rooms: the only module that knows all of them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from scv import __version__
from scv.config.paths import Home, find_home
from scv.errors import AlreadyServed
from scv.rpc import ByteStream, FdStream, memory_pair, take_stdio
from scv.server.server import Server
from scv.values import frozen
from scv.wire.limits import BLOB_TOTAL_BYTES

if TYPE_CHECKING:
    import socket
    from signal import Signals

    from scv.config.load import Loaded
    from scv.config.settings import Settings
    from scv.core.ports import Notice, Runtime, Tool
    from scv.core.records import SessionRecord, Store
    from scv.providers import ModelEndpoints
    from scv.store import SqliteStore


@frozen
class Options:
    """What the command line says, for every session this process starts.

    `flags` is a nested settings table that goes above every other layer;
    `provider`, `model` and `base_url` choose and override the profile.
    """

    home: Home
    environment: Mapping[str, str]
    config_file: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    provider: str | None = None
    model: str | None = None
    base_url: str | None = None


def default_options() -> Options:
    """Options of a process started without any flag."""
    environment = dict(os.environ)
    return Options(find_home(environment), environment)


class Workbench:
    """Builds what sessions work with; keeps endpoints open between turns."""

    def __init__(self, options: Options, endpoints: ModelEndpoints) -> None:
        self._options = options
        self._endpoints = endpoints
        self._store: SqliteStore | None = None

    async def open_store(self) -> Store:
        """Open the instance's session store."""
        from scv.store import open_store

        self._store = open_store(str(self._options.home.state))
        return self._store

    def __call__(
        self, session: SessionRecord, environment: Mapping[str, str]
    ) -> Runtime:
        """Resolve settings, model and tools of one session.

        Raises:
            ConfigError: The configuration cannot serve it.
        """
        from scv.config.load import load
        from scv.config.provider import choose_profile
        from scv.core.instructions import system_prompt
        from scv.core.policy import stricter
        from scv.core.ports import Runtime

        options, config = self._options, session.config
        loaded = load(
            options.home,
            workspace=session.root,
            environment=options.environment,
            config_file=options.config_file,
            flags=options.flags,
        )
        settings = loaded.settings
        if "approval" in config:
            policy = stricter(settings.tools.approval_policy, config["approval"])
            tools = replace(settings.tools, approval_policy=policy)
            settings = replace(settings, tools=tools)
        chosen = choose_profile(
            settings,
            name=config.get("provider") or options.provider,
            overrides={
                **loaded.profile_overrides,
                **_given(model=options.model, base_url=options.base_url),
            },
            asked=_given(model=config.get("model"), base_url=config.get("baseUrl")),
        )
        return Runtime(
            settings=settings,
            model=self._endpoints.open_model(
                chosen.name,
                chosen.profile,
                limits=settings.provider_limits,
                model_name=chosen.profile.model,
                environment=options.environment,
            ),
            tools={}
            if config.get("tools") == "none"
            else self._tools(session, settings, environment),
            instructions=system_prompt(settings.agent.system_prompt, session.root),
            notices=tuple(self._notices(loaded)),
            effort=config.get("effort") or None,
        )

    def _notices(self, loaded: Loaded) -> Iterator[Notice]:
        from scv.core.ports import Notice

        for text in loaded.notices:
            yield Notice("config.ignored", text)
        for text in self._store.notices if self._store else ():
            yield Notice("store.damaged", text)

    def _tools(
        self,
        session: SessionRecord,
        settings: Settings,
        environment: Mapping[str, str],
    ) -> dict[str, Tool]:
        from scv.tools.registry import build_tools

        return build_tools(
            session.root,
            settings.tools,
            read_blob=self._read_blob,
            environment=environment,
            instance=str(self._options.home.root),
            session=session.id,
        )

    async def _read_blob(self, blob_id: str) -> bytes | None:
        from scv.errors import NotFound

        assert self._store is not None
        try:
            data, _, _ = await self._store.read_blob(
                blob_id, offset=0, limit=BLOB_TOTAL_BYTES
            )
        except NotFound:
            return None
        return data


def _given(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}


@asynccontextmanager
async def open_server(options: Options, transport: str) -> AsyncIterator[Server]:
    """Run a server for the life of the block."""
    from scv.providers import ModelEndpoints

    async with ModelEndpoints(__version__) as endpoints:
        workbench = Workbench(options, endpoints)
        server = Server(
            open_store=workbench.open_store,
            equip=workbench,
            transport=transport,
            environment=options.environment,
            find_daemon=lambda: _running_holder(str(options.home.server_lock)),
        )
        async with server.running():
            yield server


async def serve_stdio(options: Options) -> int:
    """Serve one client on stdin and stdout until it leaves; returns the exit status."""
    from anyio import create_task_group

    stream = FdStream(*take_stdio())

    async def stop(signals: AsyncIterator[Signals]) -> None:
        await anext(signals)
        await stream.aclose()  # as if the client had left

    status = 0
    with _stop_signals() as signals:
        async with (
            open_server(options, "stdio") as server,
            create_task_group() as tasks,
        ):
            tasks.start_soon(stop, signals)
            status = await server.serve(stream)
            tasks.cancel_scope.cancel()
    return status


async def serve_socket(options: Options, *, on_ready: Callable[[], None]) -> int:
    """Serve everybody of this user on the home's socket until a signal says stop.

    Raises:
        AlreadyServed: Another process does so.
        Refused: The home or the socket's name cannot be used.
    """
    from scv.host.locks import lock_exclusively
    from scv.host.private import private_directory
    from scv.host.sockets import listen

    home, path = options.home, str(options.home.socket)
    private_directory(str(home.root))
    lock = lock_exclusively(str(home.server_lock))
    if lock is None:
        raise AlreadyServed(str(home.root), _running_holder(str(home.server_lock)))
    with lock, _stop_signals() as signals, listen(path) as listening:
        try:
            async with open_server(options, "unix") as server:
                await _serve_until(signals, server, listening, options, on_ready)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(path)
    return 0


async def _serve_until(
    signals: AsyncIterator[Signals],
    server: Server,
    listening: socket.socket,
    options: Options,
    on_ready: Callable[[], None],
) -> None:
    """Serve until the first signal; then end all turns, and only then connections."""
    from anyio import create_task_group

    from scv.server.listener import Listener

    listener = Listener(server, listening, instance=str(options.home.root))
    async with create_task_group() as connections:
        async with create_task_group() as accepting:
            accepting.start_soon(listener.accept, connections)
            on_ready()
            await anext(signals)
            accepting.cancel_scope.cancel()
        listening.close()  # a new front end sees at once that nobody serves here
        await server.stop()
        connections.cancel_scope.cancel()


def _stop_signals() -> AbstractContextManager[AsyncIterator[Signals]]:
    """Catch what asks for an end; a hang-up not where nohup said to live on."""
    import signal

    from anyio import open_signal_receiver

    wanted = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    return open_signal_receiver(*wanted)


def _running_holder(lock_path: str) -> int | None:
    """Name the process that holds a lock, for a message; the lock alone decides."""
    from scv.host.locks import read_holder

    holder = read_holder(lock_path)
    return holder.pid if holder is not None and holder.is_running else None


@asynccontextmanager
async def in_process(options: Options) -> AsyncIterator[ByteStream]:
    """Run a server in this process and yield the client's end of its connection."""
    from anyio import create_task_group

    ours, theirs = memory_pair()
    async with open_server(options, "memory") as server, create_task_group() as tasks:
        tasks.start_soon(server.serve, theirs)
        try:
            yield ours
        finally:
            await ours.aclose()
