"""`scv exec` over the running server: the same prompt, without an event loop."""

import os
import select
import signal
from typing import TYPE_CHECKING, Any

from scv.cli.arguments import GlobalOptions
from scv.cli.json_lines import JsonLines
from scv.cli.plain import PlainTurn
from scv.cli.reach import running_config, travelling_environment
from scv.cli.report import EXIT_FAILED, EXIT_INTERRUPTED
from scv.client.blocking import BlockingClient
from scv.client.decision import DEFER
from scv.client.mirror import Mirror
from scv.errors import ProtocolError
from scv.wire.errors import CODES

if TYPE_CHECKING:
    import socket

    from scv.cli.headless import Wish

Json = dict[str, Any]

_PAGE_BYTES = 4096  # poll reports a pipe as writable when it takes this much


def run_attached(
    options: GlobalOptions, wish: "Wish", connected: "socket.socket"
) -> int:
    """Run one prompt on a connected server; 0 only when the turn completed."""
    client = BlockingClient(connected, name="scv exec", approvals=True)
    run = _Attached(client, options, wish)
    try:
        with client.catching(
            run.interrupt, signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        ):
            return run.run()
    finally:
        client.close()


class _Attached:
    """One run: the session as it is known here, and what is printed of it."""

    def __init__(
        self, client: BlockingClient, options: GlobalOptions, wish: "Wish"
    ) -> None:
        self._client = client
        self._wish = wish
        self._config = running_config(options)
        self._out = _Descriptor(1)
        quiet = os.open(os.devnull, os.O_WRONLY) if wish.as_json else 2
        self._err = _Descriptor(quiet)
        self._printer = PlainTurn(self._out, self._err)
        self._show = (
            JsonLines(self._out, is_new=wish.session_id is None).take
            if wish.as_json
            else self._printer.take
        )
        self._mirror: Mirror
        self._turn_id: str
        self._signals = 0
        self._is_cancelled = False

    def interrupt(self) -> None:
        """Take a signal; the second one waits for nothing any more."""
        self._signals += 1
        if self._signals > 1:
            os._exit(EXIT_INTERRUPTED)

    def run(self) -> int:
        """Give the prompt and follow its turn to the end."""
        self._mirror = self._open()
        parts = [{"type": "text", "text": self._wish.prompt}]
        started = self._client.act(
            "scv/turn/start", {"sessionId": self._mirror.id, "input": parts}
        )
        self._turn_id = started["turnId"]
        while (turn := self._ended()) is None:
            if (self._signals or self._out.is_broken) and not self._is_cancelled:
                self._cancel()
            message = self._client.receive(self._out, self._err)
            if message is not None:
                self._take(message)
        if not self._wish.as_json and not self._out.is_broken:
            self._printer.ended(turn)
        for output in (self._out, self._err):
            output.flush(wait_ms=None)
        if self._signals:
            return EXIT_INTERRUPTED
        return 0 if turn["status"] == "completed" else EXIT_FAILED

    def _open(self) -> Mirror:
        environment = travelling_environment()
        if self._wish.session_id is None:
            created = self._client.act(
                "scv/session/create",
                {
                    "workspace": {"root": os.getcwd()},
                    "channel": "exec",
                    "environment": environment,
                    **({"config": self._config} if self._config else {}),
                },
            )
            return Mirror(
                created["session"], epoch=created["epoch"], last=created["seq"]
            )
        session_id = self._wish.session_id
        mirror = self._attach(session_id, environment=environment)
        if self._config:
            self._client.act(
                "scv/session/update", {"sessionId": session_id, "config": self._config}
            )
        return mirror

    def _attach(self, session_id: str, **more: Any) -> Mirror:
        return Mirror.of_attached(
            self._client.request(
                "scv/session/attach", {"sessionId": session_id, **more}
            )
        )

    def _ended(self) -> Json | None:
        turn = self._mirror.turn
        if turn is None or turn["id"] != self._turn_id or turn["state"] != "ended":
            return None
        return turn

    # --- what the server sends ---

    def _take(self, message: Json) -> None:
        match message.get("method"):
            case "scv/session/events":
                self._apply(message["params"])
            case "scv/session/lagged":
                self._recover()
            case "scv/approval/request":
                self._client.answer(message["id"], self._judge(message["params"]))
            case _ if "id" in message and "method" in message:
                self._client.refuse(message["id"])

    def _judge(self, approval: Json) -> Json:
        """Answer questions of our own turn as the command line says."""
        if approval["turnId"] != self._turn_id:
            return DEFER
        return self._printer.judge(approval, self._wish.allowed)

    def _apply(self, batch: Json) -> None:
        applied = self._mirror.apply(batch)
        if applied.standing == "applied":
            self._show_whole(batch, applied.events)
        elif applied.standing != "dropped":
            self._recover()

    def _show_whole(self, batch: Json, events: tuple[Json, ...]) -> None:
        """Print events; a long answer is fetched first, should some of it be missing.

        A server that is ahead of its reader goes on from the log, which forgets the
        deltas of a finished item; and that holds only head and tail of a long text.
        """
        if not self._wish.as_json:
            events = tuple(self._whole(event) for event in events)
        self._show(batch, events)

    def _whole(self, event: Json) -> Json:
        item = event["data"].get("item", {})
        if (event["type"], item.get("kind")) != ("item.completed", "assistant_message"):
            return event
        if "blobId" not in item:
            return event
        item = {**item, "text": self._client.read_blob(item["blobId"]).decode()}
        del item["blobId"]
        return {**event, "data": {**event["data"], "item": item}}

    def _recover(self) -> None:
        """Fetch the events that did not come, or else the state they led to."""
        is_complete = False
        while not is_complete:
            after = {"epoch": self._mirror.epoch, "after": self._mirror.last}
            try:
                batch = self._client.request(
                    "scv/session/replay", {"sessionId": self._mirror.id, **after}
                )
            except ProtocolError as error:
                if error.code != CODES["replay.unavailable"]:
                    raise
                return self._attach_anew()
            applied = self._mirror.apply(batch)
            if applied.standing == "applied":
                self._show_whole(batch, applied.events)
            elif applied.standing != "dropped":
                return self._attach_anew()
            is_complete = batch["complete"]
        return None

    def _attach_anew(self) -> None:
        session_id = self._mirror.id
        self._mirror = self._attach(session_id)
        found = self._client.request(
            "scv/turn/get", {"sessionId": session_id, "turnId": self._turn_id}
        )
        self._mirror.turn = found["turn"]

    def _cancel(self) -> None:
        """Stop the turn; its end is waited for as usual."""
        self._is_cancelled = True
        wanted = {"sessionId": self._mirror.id, "turnId": self._turn_id}
        try:
            self._client.act("scv/turn/cancel", {**wanted, "reason": "interrupted"})
        except ProtocolError:
            return  # it has ended meanwhile


class _Descriptor:
    """Writes text to a descriptor; `is_broken` once nobody reads any more.

    The descriptor is shared with other processes, so it stays blocking. `poll` says
    whether a pipe takes a page more; no single write is larger than that.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_broken = False
        self._waiting = bytearray()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    @property
    def is_holding(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._waiting)

    def write(self, text: str) -> None:
        """Write what is taken now, and keep the rest."""
        if not self.is_broken:
            self._waiting += text.encode("utf-8", "replace")
            self.flush()

    def flush(self, wait_ms: int | None = 0) -> None:
        """Write page by page as long as one is taken within `wait_ms`; None waits."""
        done = 0
        try:
            while done < len(self._waiting) and self._poll.poll(wait_ms):
                page = bytes(self._waiting[done : done + _PAGE_BYTES])
                done += os.write(self.fd, page)
        except OSError:
            self.is_broken = True
            self._waiting.clear()
        del self._waiting[:done]
