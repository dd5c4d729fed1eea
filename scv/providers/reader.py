"""Reads one Responses stream: bytes in, model events out, no I/O.

Deltas show progress; what counts is the final form of an item (`items.py`).
Whatever comes after the terminal event is dropped. Text deltas that arrive in
the same chunk become one event: nothing waits for a later chunk, and a fast
stream costs little.

Source: the Responses API reference, "Streaming events".
"""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from scv.core.ports import (
    ModelEvent,
    ReasoningDelta,
    ResponseDone,
    TextDelta,
    TokenUsage,
)
from scv.errors import ProviderError, ResponseLimit
from scv.providers.characters import clean_text, join_halves, utf8_size
from scv.providers.failure import BODY_BYTES, Failures
from scv.providers.items import Item, OutputItems
from scv.providers.sse import Event, SseParser

if TYPE_CHECKING:
    from scv.config.settings import ProviderLimits

Json = dict[str, Any]
Out = list[ModelEvent]


class ResponseReader:
    """Feed it the answer's bytes; `done` is set when the terminal event came.

    `has_started` says that text, reasoning or a call has come, `is_over` that
    nothing after this point counts.

    Args:
        wire: Name of the wire, for the history entry.
        model: Name of the model, for the history entry.
        limits: Caps on the response; a violation ends it before any call runs.
        failures: Builds errors in the endpoint's name.
    """

    def __init__(
        self, *, wire: str, model: str, limits: "ProviderLimits", failures: Failures
    ) -> None:
        self.done: ResponseDone | None = None
        self.is_over = False
        self._has_shown = False
        self._wire, self._model = wire, model
        self._limits = limits
        self._failures = failures
        self._sse = SseParser(limits.max_sse_event_bytes)
        self._items = OutputItems(limits, failures)
        self._bytes = self._text_bytes = 0
        self._text_index: Any = None  # the item that text grows in, and its pieces
        self._text_pieces: list[str] = []
        self._half = ""  # first half of a surrogate pair that a delta ended with
        self._head: bytes | None = b""  # start of the body until it proves a stream
        self._handlers: dict[str, Callable[[Json, Out], None]] = {
            "response.refusal.delta": self._on_refusal,
            "response.reasoning_summary_text.delta": self._on_reasoning,
            "response.reasoning_text.delta": self._on_reasoning,
            "response.reasoning_summary_part.added": self._on_reasoning_part,
            "response.output_item.added": self._on_item_added,
            "response.function_call_arguments.delta": self._on_arguments,
            "response.function_call_arguments.done": self._on_arguments_done,
            "response.output_item.done": self._on_item_done,
            "response.completed": self._on_completed,
            "response.incomplete": self._on_incomplete,
            "response.failed": self._on_failed,
            "response.cancelled": self._on_failed,
            "error": self._on_failed,
        }

    @property
    def has_started(self) -> bool:
        """Text, reasoning or a call has come; another attempt would repeat it."""
        return self._has_shown or self._items.call_count > 0

    def feed(self, chunk: bytes) -> Iterator[ModelEvent]:
        """Give what `chunk` adds; what came before a failure is given first.

        Raises:
            ProviderError: The stream reports a failure, breaks a cap, or is no stream.
        """
        self._bytes += len(chunk)
        if self._bytes > self._limits.max_response_bytes:
            raise self._over("the answer", self._limits.max_response_bytes)
        if self._head is not None:
            chunk = self._look(chunk)
        if chunk:
            yield from self._read(self._sse.feed(chunk))

    def finish(self) -> Iterator[ModelEvent]:
        """The body has ended: give what was left, or say what is missing.

        Raises:
            ProviderError: There was no terminal event.
        """
        if self._head is not None and self._head.strip():
            raise self._no_stream(self._head)
        if not self.is_over:
            yield from self._read(self._sse.finish(), is_last=True)
        if self.done is None:
            what = "ended its stream before the answer was complete"
            if self._bytes == 0:
                what = "sent an empty answer"
            raise self._failures.ended_early(what)

    # --- the body ---

    def _look(self, chunk: bytes) -> bytes:
        """Hold the body back while it may be an error body instead of a stream."""
        head = (self._head or b"") + chunk
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if start in (b"{", b"[", b"<", b""):
            if len(head) >= BODY_BYTES and start:
                raise self._no_stream(head)
            self._head = head
            return b""
        self._head = None
        return head

    def _no_stream(self, body: bytes) -> ProviderError:
        text = body[:BODY_BYTES].decode("utf-8", "replace").strip()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and value.get("error"):
            return self._failures.event(value, status=200)
        what = "an HTML page" if text.startswith("<") else "one JSON document"
        return self._failures.malformed(
            f"answered 200 with {what} instead of an event stream; check base_url"
        )

    def _read(
        self, events: list[Event], *, is_last: bool = False
    ) -> Iterator[ModelEvent]:
        out: Out = []
        text: list[str] = []
        try:
            for name, value in self._decode(events, is_last=is_last):
                if self.is_over:
                    break
                if type(value) is not dict:
                    continue
                kind = value.get("type") or name.decode("utf-8", "replace")
                if kind == "response.output_text.delta":
                    self._on_text(value, text)
                    continue
                handler = self._handlers.get(kind) if isinstance(kind, str) else None
                if handler is not None:
                    if text:
                        self._show(text, out)
                    handler(value, out)
                    yield from out
                    out.clear()
                elif value.get("error") and "type" not in value:
                    raise self._failures.event(value, status=200)
        except ProviderError:
            if text:
                self._show(text, out)
            yield from out
            raise
        if text:
            self._show(text, out)
            yield from out

    def _decode(
        self, events: list[Event], *, is_last: bool
    ) -> Iterator[tuple[bytes, Any]]:
        """Give names and JSON values, until `[DONE]`.

        One call of the JSON parser for all events of a chunk costs a third of one
        for each; when it finds anything odd, each is looked at by itself.
        """
        if len(events) > 1:
            whole = b",".join([data for _, data in events])
            try:
                values = json.loads(f"[{whole.decode()}]")
            except (ValueError, RecursionError):
                values = ()
            if len(values) == len(events):
                yield from zip((name for name, _ in events), values, strict=True)
                return
        for name, data in events:
            if data == b"[DONE]":
                self.is_over = True
                return
            try:
                value = json.loads(data.decode())
            except (ValueError, RecursionError):
                if is_last:
                    return  # the cut-off end of a broken stream
                raise self._not_json(name, data) from None
            yield name, value

    def _not_json(self, name: bytes, data: bytes) -> ProviderError:
        if name == b"error":
            return self._failures.event(
                data[:BODY_BYTES].decode("utf-8", "replace"), status=200
            )
        return self._failures.malformed("an event of its stream is not JSON")

    # --- text ---

    def _on_text(self, value: Json, text: list[str]) -> None:
        delta = value.get("delta")
        if type(delta) is not str or not delta:
            return
        index = value.get("output_index")
        if index is None or index != self._text_index:
            item = self._items.find(value)
            item.kind = item.kind or "message"
            text.append(self._lead(item))
            self._text_index, self._text_pieces = index, item.text
        self._text_pieces.append(delta)
        text.append(delta)

    def _lead(self, item: Item) -> str:
        """Keep the texts of two messages apart."""
        is_next = not item.text and self._items.has_text_beside(item)
        return "\n\n" if is_next else ""

    def _show(self, text: list[str], out: Out) -> None:
        shown = self._half + "".join(text)
        text.clear()
        self._half = ""
        if not shown.isascii():
            shown, self._half = join_halves(shown)
        self._count_text(utf8_size(shown))
        if shown:
            self._has_shown = True
            out.append(TextDelta(shown))

    def _count_text(self, size: int) -> None:
        self._text_bytes += size
        if self._text_bytes > self._limits.max_assistant_bytes:
            raise self._over("the answer's text", self._limits.max_assistant_bytes)

    def _over(self, what: str, limit: int) -> ResponseLimit:
        return ResponseLimit(
            f"{what} of {self._failures.host} is over {limit} bytes",
            code="response_limit",
        )

    def _show_final(self, item: Item, raw: Json, out: Out) -> None:
        """Show what the deltas of a message lacked; its final form is what counts."""
        whole = ""
        for part in _dicts(raw.get("content")):
            is_refusal = part.get("type") == "refusal"
            item.is_refusal = item.is_refusal or is_refusal
            text = part.get("refusal" if is_refusal else "text")
            whole += text if isinstance(text, str) else ""
        shown = "".join(item.text)
        if not whole or whole == shown:
            return
        lead = self._lead(item)
        item.text[:] = [whole]
        if whole.startswith(shown):
            self._show([lead, whole[len(shown) :]], out)
        else:
            self._count_text(utf8_size(whole) - utf8_size(shown))

    # --- other events ---

    def _on_refusal(self, value: Json, out: Out) -> None:
        self._items.find(value).is_refusal = True
        text: list[str] = []
        self._on_text(value, text)
        self._show(text, out)

    def _on_reasoning(self, value: Json, out: Out) -> None:
        delta = value.get("delta")
        if isinstance(delta, str) and delta:
            self._has_shown = True
            out.append(ReasoningDelta(clean_text(delta)))

    def _on_reasoning_part(self, value: Json, out: Out) -> None:
        if value.get("summary_index"):
            out.append(ReasoningDelta("\n\n"))

    def _on_item_added(self, value: Json, out: Out) -> None:
        self._items.begin(value)

    def _on_arguments(self, value: Json, out: Out) -> None:
        piece = value.get("delta")
        if isinstance(piece, str):
            self._items.add_arguments(self._items.find(value), piece)

    def _on_arguments_done(self, value: Json, out: Out) -> None:
        whole = value.get("arguments")
        if isinstance(whole, str):
            self._items.set_arguments(self._items.find(value), whole)

    def _on_item_done(self, value: Json, out: Out) -> None:
        raw = value.get("item")
        if isinstance(raw, dict):
            self._take_final(value.get("output_index"), raw, out)

    def _take_final(self, index: Any, raw: Json, out: Out) -> None:
        item = self._items.take_final(index, raw)
        if item.kind == "message":
            self._show_final(item, raw, out)

    # --- the end ---

    def _on_completed(self, value: Json, out: Out) -> None:
        self._end(value, "end", "", out)

    def _on_incomplete(self, value: Json, out: Out) -> None:
        details = _dict(value.get("response")).get("incomplete_details")
        reason = _dict(details).get("reason")
        detail = self._failures.clean(reason) if isinstance(reason, str) else ""
        self._end(value, "filter" if "filter" in detail else "length", detail, out)

    def _on_failed(self, value: Json, out: Out) -> None:
        error: Any = value
        if value.get("type") != "error":
            error = _dict(value.get("response")).get("error") or {}
        raise self._failures.event(error, status=200)

    def _end(
        self,
        value: Json,
        stop: Literal["end", "length", "filter", "refusal"],
        detail: str,
        out: Out,
    ) -> None:
        response = _dict(value.get("response"))
        for index, raw in enumerate(_dicts(response.get("output"))):
            if not self._items.has_final(index):
                self._take_final(index, raw, out)
        self.is_over = True
        message = self._items.message(
            is_whole=stop == "end", wire=self._wire, model=self._model
        )
        if stop == "end" and self._items.is_refusal:
            stop = "refusal"
        usage = read_usage(response.get("usage"))
        self.done = ResponseDone(message, usage, stop, detail)


def read_usage(value: Any) -> TokenUsage | None:
    """Read the usage block; None when the endpoint gives none."""
    if not isinstance(value, dict):
        return None
    return TokenUsage(
        _count(value, "input_tokens"),
        _count(value, "output_tokens"),
        _count(value.get("input_tokens_details"), "cached_tokens"),
        _count(value.get("output_tokens_details"), "reasoning_tokens"),
    )


def _count(value: Any, key: str) -> int:
    number = _dict(value).get(key)
    return number if isinstance(number, int) and number > 0 else 0


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Json]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
