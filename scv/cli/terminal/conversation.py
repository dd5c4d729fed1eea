"""The conversation on the screen: events become blocks, keys become requests."""

import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from anyio import Event, sleep

from scv.cli.results import call_line
from scv.cli.terminal import blocks, questions
from scv.cli.terminal.screen import Handlers, Screen
from scv.client import Client, FollowedSession, decide
from scv.client.inert import inert, inert_line
from scv.errors import ScvError

Json = dict[str, Any]

RECALLED_ITEMS = 20
RUNNING_CHARACTERS = 20_000
HELP = """\
Enter sends · Ctrl+J makes a new line · Up and Down recall earlier prompts
Esc or Ctrl+C cancels the running turn · Ctrl+C twice, Ctrl+D or /quit leaves
/new begins a new session · /sessions lists those of this directory, /sessions 2 opens
Questions: y allows once · n denies · d denies with a reason · s denies and stops
the turn · v shows all of what would run"""
HINTS = "/help · Esc cancels · Ctrl+C leaves"
_COMMAND = re.compile(r"/(help|quit|new|sessions)(?:\s+(\d+))?\s*")


@dataclass(slots=True)
class _Asked:
    """A question on the screen; `is_seen` once nothing of it is hidden."""

    approval: Json
    is_seen: bool
    answered: Event = field(default_factory=Event)
    decision: Json = field(default_factory=dict)


class Conversation:
    """Joins a client and a screen.

    `config` and `environment` are for its sessions; `suggestions` are prompts to offer
    one after the other, for a guided tour.
    """

    def __init__(
        self,
        *,
        workspace: str,
        config: Json,
        environment: dict[str, str] | None,
        allowed: frozenset[str],
        history_path: str,
        suggestions: tuple[str, ...] = (),
    ) -> None:
        self._workspace = workspace
        self._config = config
        self._environment = environment
        self._allowed = allowed
        self._suggestions = list(suggestions)
        label = f"[allows {', '.join(sorted(allowed))}] " if allowed else ""
        self.screen = Screen(
            Handlers(self._submit, self._interrupt, self._choose),
            history_path=history_path,
            label=label,
        )
        self.screen.status = self._status
        self._client: Client
        self._session: FollowedSession | None = None
        self._turn_id: str | None = None
        self._starting = False
        self._began = 0.0
        self._asked: list[_Asked] = []
        self._listed: list[str] = []
        self._growing: dict[str, str] = {}
        self._hint = ""
        self._wants_to_leave = False

    # --- life ---

    def join(self, client: Client) -> None:
        """Use a connection; comes before all else."""
        self._client = client

    async def open(self, session_id: str) -> None:
        """Go on with a session: show its newest items."""
        session = await self._client.attach(
            session_id,
            tail_items=RECALLED_ITEMS,
            environment=self._environment,
            on_events=self._take,
        )
        await self._drop_session()
        if self._config:
            await session.update(config=self._config)
        self._session = session
        session.on_reset = self._show_items
        self._show_items()

    async def run(self) -> None:
        """Talk until the person leaves."""
        self._suggest()
        await self.screen.run()

    async def ask(self, approval: Json) -> Json:
        """Put a question to the person; an `OnApproval`."""
        block, is_whole = questions.question_block(approval)
        self.screen.show(block)
        if approval["risk"] in self._allowed:
            return decide(approval, "allow_once")
        asked = _Asked(approval, is_whole)
        self._asked.append(asked)
        self._show_question()
        try:
            await asked.answered.wait()
        finally:
            self._asked.remove(asked)
            self._show_question()
        return asked.decision

    async def tick(self) -> None:
        """Keep the clock of the status line going while a turn runs."""
        while True:
            await sleep(1)
            if self._is_busy:
                self.screen.refresh()

    # --- events ---

    def _take(self, batch: Json, events: tuple[Json, ...]) -> None:
        for event in events:
            self._show_event(event)
        self.screen.refresh()

    def _show_event(self, event: Json) -> None:
        data = event["data"]
        match event["type"]:
            case "turn.accepted":
                self._turn_id, self._began = event["turnId"], time.monotonic()
                self._hint = ""
            case "item.started":
                self._growing = {data["item"]["id"]: ""}
                self.screen.running_text = ""
            case "item.delta" if event["itemId"] in self._growing:
                self._grow(event["itemId"], data["append"])
            case "item.updated":
                self._show_running_call(event["itemId"])
            case "item.completed":
                self._growing.pop(data["item"]["id"], None)
                self.screen.running_text = ""
                self.screen.show(blocks.item_block(data["item"], was_asked=True))
            case "approval.resolved":
                line = questions.answer_line(data)
                self.screen.show(blocks.quiet_block(line))
            case "retry.scheduled":
                seconds = data["delayMs"] / 1000
                text = f"Trying again in {seconds:.1f} s: {data['reason']}"
                self.screen.show(blocks.note_block(text))
            case "notice":
                self.screen.show(blocks.note_block(data["message"]))
            case "turn.ended":
                self._turn_ended(data)

    def _grow(self, item_id: str, text: str) -> None:
        grown = self._growing[item_id] + inert(text)
        self._growing[item_id] = grown[-RUNNING_CHARACTERS:]
        self.screen.running_text = self._growing[item_id]

    def _show_running_call(self, item_id: str) -> None:
        assert self._session is not None
        item = self._session.mirror.item(item_id)
        if item is None or item["kind"] != "tool_call":
            return
        if item["status"] == "in_progress":
            progress = inert(item.get("progress", ""))
            self.screen.running_text = f"● {call_line(item)}\n{progress}".strip()
        else:
            self.screen.running_text = ""

    def _turn_ended(self, turn: Json) -> None:
        self._turn_id = None
        self._wants_to_leave = False
        self._hint = ""
        self._growing = {}
        self.screen.running_text = ""
        self.screen.show(blocks.end_block(turn))
        self._suggest()

    def _show_items(self) -> None:
        assert self._session is not None
        mirror = self._session.mirror
        self.screen.show(
            blocks.quiet_block(f"Session {mirror.id}: its newest items"),
            *(blocks.item_block(item) for item in mirror.items),
        )
        turn = mirror.turn
        is_running = turn is not None and turn["state"] != "ended"
        self._turn_id = turn["id"] if turn is not None and is_running else None

    def _suggest(self) -> None:
        if self._suggestions:
            self.screen.suggest(self._suggestions.pop(0))
            self._hint = "Enter runs the suggested prompt"

    # --- questions ---

    def _show_question(self) -> None:
        if not self._asked:
            self.screen.unask()
            return
        asked = self._asked[0]
        allow = "[y] allow once" if asked.is_seen else "[v] view all of it, then allow"
        title = inert_line(asked.approval["title"], 60)
        self.screen.ask(f"{title}?  {allow}  [n] deny  [d] deny, say why  [s] stop")

    def _choose(self, key: str, reason: str) -> None:
        if not self._asked:
            return
        asked = self._asked[0]
        match key:
            case "v":
                self._client.spawn(lambda: self._view(asked))
            case "y" if asked.is_seen:
                self._decide(asked, decide(asked.approval, "allow_once"))
            case "y":
                self._hint = "a part of it is hidden: press v first"
            case "n":
                self._decide(asked, decide(asked.approval, "deny"))
            case "d":
                self._decide(asked, decide(asked.approval, "deny", reason.strip()))
            case "s":
                self._decide(asked, decide(asked.approval, "deny_stop"))
        self.screen.refresh()

    def _decide(self, asked: _Asked, decision: Json) -> None:
        self._hint = ""
        asked.decision = decision
        asked.answered.set()

    async def _view(self, asked: _Asked) -> None:
        async def show() -> None:
            texts = {}
            for blob_id in questions.blob_ids(asked.approval):
                data = await self._client.read_blob(blob_id)
                texts[blob_id] = data.decode("utf-8", "replace")
            self.screen.show(questions.whole_block(asked.approval, texts))
            asked.is_seen = True
            self._hint = ""
            if asked in self._asked:
                self._show_question()

        await self._attempt(show)

    # --- keys ---

    @property
    def _is_busy(self) -> bool:
        return self._starting or self._turn_id is not None

    def _submit(self, text: str) -> bool:
        self._wants_to_leave = False
        command = _COMMAND.fullmatch(text.strip())
        if command is not None:
            self._run_command(command[1], command[2])
            return True
        if self._is_busy:
            self._hint = "a turn is running; Esc cancels it"
            self.screen.refresh()
            return False
        self._starting, self._began = True, time.monotonic()
        self._client.spawn(lambda: self._attempt(lambda: self._prompt(text)))
        return True

    async def _prompt(self, text: str) -> None:
        try:
            if self._session is None:
                self._session = await self._client.create_session(
                    self._workspace,
                    config=self._config or None,
                    channel="terminal",
                    environment=self._environment,
                    on_events=self._take,
                )
                self._session.on_reset = self._show_items
            await self._session.prompt(text)
        except ScvError:
            self.screen.suggest(text)
            raise
        finally:
            self._starting = False

    def _interrupt(self, key: str) -> None:
        """Esc, Ctrl+C and Ctrl+D: cancel what runs; leave when nothing does."""
        if self._is_busy and not self._wants_to_leave:
            self._wants_to_leave = key == "c-c"
            self._hint = "cancelling…"
            self._client.spawn(lambda: self._attempt(self._cancel))
        elif key == "c-d" or (key == "c-c" and self._wants_to_leave):
            self.screen.leave()
        elif key == "c-c":
            self._wants_to_leave = True
            self._hint = "Ctrl+C again leaves"
        self.screen.refresh()

    async def _cancel(self) -> None:
        session, turn_id = self._session, self._turn_id
        if session is not None and turn_id is not None:
            await session.cancel(turn_id, "cancelled by the user")

    # --- local commands ---

    def _run_command(self, name: str, argument: str | None) -> None:
        match name:
            case "help":
                self.screen.show(blocks.quiet_block(HELP))
            case "quit":
                self.screen.leave()
            case "new" | "sessions" if self._is_busy:
                self._hint = "a turn is running; Esc cancels it"
            case "new":
                self._client.spawn(lambda: self._attempt(self._begin_anew))
            case "sessions":
                number = int(argument) if argument else None
                self._client.spawn(lambda: self._attempt(lambda: self._list(number)))

    async def _begin_anew(self) -> None:
        await self._drop_session()
        self.screen.show(blocks.quiet_block("A new session begins with your prompt."))

    async def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await self._client.close_session(session.id)

    async def _list(self, number: int | None) -> None:
        if number is not None and 0 < number <= len(self._listed):
            await self.open(self._listed[number - 1])
            return
        from scv.cli.sessions import session_rows

        page = await self._client.list_sessions(workspace=self._workspace, limit=20)
        self._listed = [each["id"] for each in page["sessions"]]
        lines = [
            f"{count:3} {when:>14}  {title}"
            for count, (when, _, title) in enumerate(session_rows(page["sessions"]), 1)
        ]
        text = "\n".join(lines) or "No session was started in this directory yet."
        self.screen.show(blocks.quiet_block(text))

    async def _attempt(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do what a key asked for; a refusal is shown, and nothing else happens."""
        try:
            await act()
        except ScvError as error:
            self._hint = ""
            self.screen.show(blocks.note_block(error.message, is_error=True))
        self.screen.refresh()

    # --- status line ---

    def _status(self) -> tuple[str, str]:
        if self._asked:
            state = "waits for your answer"
        elif self._is_busy:
            state = f"working {int(time.monotonic() - self._began)} s"
        else:
            state = "ready"
        parts = [state]
        usage = self._session.mirror.usage if self._session is not None else {}
        used, size = usage.get("contextUsed"), usage.get("contextSize")
        if used and size:
            parts.append(f"context {100 * used // size} %")
        tokens = usage.get("inputTokens", 0) + usage.get("outputTokens", 0)
        if tokens:
            parts.append(f"{_short(tokens)} tokens")
        return " · ".join(parts), self._hint or HINTS


def _short(count: int) -> str:
    return str(count) if count < 10_000 else f"{count // 1000}k"


def history_path(state_folder: str) -> str:
    """Make the private file that keeps earlier prompts, and return its path."""
    from scv.host.private import open_private, private_directory

    private_directory(state_folder)
    path = os.path.join(state_folder, "prompts")
    os.close(open_private(path))
    return path
