"""The output items of one response, from their first sign to their final form.

Items are kept by `output_index`, whatever the order in which they arrive; the
final form of an item replaces what its deltas gave. Calls are counted and their
arguments measured as they grow.

Source: the Responses API reference, "Streaming events".
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scv.core.history import AssistantEntry, Call
from scv.errors import ResponseLimit
from scv.providers.characters import clean_item, clean_text, utf8_size
from scv.providers.failure import Failures

if TYPE_CHECKING:
    from scv.config.settings import ProviderLimits

Json = dict[str, Any]


@dataclass(slots=True)
class Item:
    """One output item while it grows; `final` is its last form, as it came."""

    kind: str = ""
    text: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    argument_bytes: int = 0
    call_id: str = ""
    name: str = ""
    is_refusal: bool = False
    final: Json | None = None


class OutputItems:
    """Every item of one response."""

    def __init__(self, limits: "ProviderLimits", failures: Failures) -> None:
        self.call_count = 0
        self._limits = limits
        self._failures = failures
        self._items: dict[int, Item] = {}
        self._index_of: dict[str, int] = {}  # output index by item id

    @property
    def is_refusal(self) -> bool:
        """Some item says that the model refuses."""
        return any(item.is_refusal for item in self._items.values())

    def find(self, value: Json) -> Item:
        """Return the item that a delta belongs to: by index, else by id, else the last.

        A server that gives neither sends one item after the other.
        """
        index = value.get("output_index")
        if not isinstance(index, int):
            index = self._index_of.get(str(value.get("item_id")))
            if index is None:
                index = max(self._items, default=0)
        return self._items.setdefault(index, Item())

    def has_text_beside(self, item: Item) -> bool:
        """Another item has text already."""
        return any(other.text and other is not item for other in self._items.values())

    def begin(self, value: Json) -> None:
        """Take the first form of an item."""
        raw = value.get("item")
        if isinstance(raw, dict):
            item = self._locate(value.get("output_index"), raw)
            if raw.get("type") == "function_call":
                self._name_call(item, raw)
            elif isinstance(raw.get("type"), str):
                item.kind = item.kind or raw["type"]

    def take_final(self, index: Any, raw: Json) -> Item:
        """Take the final form of an item; the text of a message is left to the reader.

        Raises:
            ResponseLimit: It is one call too many, or its arguments are too long.
        """
        item = self._locate(index, raw)
        item.final = raw
        kind = raw.get("type")
        if kind == "function_call":
            self._name_call(item, raw)
            arguments = raw.get("arguments")
            if isinstance(arguments, str) and (arguments or not item.arguments):
                self.set_arguments(item, arguments)
        elif isinstance(kind, str):
            item.kind = kind
        return item

    def has_final(self, index: int) -> bool:
        """The item at `index` has its final form."""
        item = self._items.get(index)
        return item is not None and item.final is not None

    def add_arguments(self, item: Item, piece: str) -> None:
        """Add a piece of a call's arguments.

        Raises:
            ResponseLimit: It is one call too many, or its arguments are too long.
        """
        self._count_call(item)
        item.argument_bytes += utf8_size(piece)
        self._check_arguments(item)
        item.arguments.append(piece)

    def set_arguments(self, item: Item, whole: str) -> None:
        """Replace a call's arguments; raises as `add_arguments`."""
        self._count_call(item)
        item.argument_bytes = utf8_size(whole)
        self._check_arguments(item)
        item.arguments = [whole]

    def message(self, *, is_whole: bool, wire: str, model: str) -> AssistantEntry:
        """Put the items together, in the order of their indexes.

        Raises:
            ProviderProtocol: A call of a whole response has no name.
        """
        native: list[Json] = []
        calls: list[Call] = []
        texts: list[str] = []
        for _, item in sorted(self._items.items()):
            if item.kind == "function_call":
                if item.name:
                    calls.append(_call(item, {call.call_id for call in calls}))
                    native.append(_native_call(item.final, calls[-1]))
                elif is_whole:
                    raise self._failures.malformed("a tool call came without a name")
                continue
            text = clean_text("".join(item.text))
            if text:
                texts.append(text)
            if item.final is not None:
                native.append(clean_item(item.final))
            elif text:
                native.append({"role": "assistant", "content": text})
        while not is_whole and native and native[-1].get("type") == "reasoning":
            native.pop()  # the API refuses one without the item that follows it
        return AssistantEntry(
            "\n\n".join(texts), tuple(calls), tuple(native), wire, model
        )

    def _locate(self, index: Any, raw: Json) -> Item:
        item_id = raw.get("id")
        if not isinstance(index, int):
            index = self._index_of.get(str(item_id))
            if index is None:
                index = max(self._items, default=-1) + 1
        if isinstance(item_id, str):
            self._index_of[item_id] = index
        return self._items.setdefault(index, Item())

    def _name_call(self, item: Item, raw: Json) -> None:
        self._count_call(item)
        for attribute in ("call_id", "name"):
            given = raw.get(attribute)
            if isinstance(given, str) and given:
                setattr(item, attribute, given)

    def _count_call(self, item: Item) -> None:
        if item.kind == "function_call":
            return
        item.kind = "function_call"
        self.call_count += 1
        most = self._limits.max_tool_calls
        if self.call_count > most:
            raise ResponseLimit(
                f"the answer of {self._failures.host} has more than {most} tool calls",
                code="tool_limit",
            )

    def _check_arguments(self, item: Item) -> None:
        most = self._limits.max_tool_arguments_bytes
        if item.argument_bytes > most:
            raise ResponseLimit(
                f"the arguments of one tool call are over {most} bytes",
                code="tool_limit",
            )


def _call(item: Item, used: set[str]) -> Call:
    call_id = clean_text(item.call_id)
    if not call_id:
        from secrets import token_hex

        call_id = f"call_{token_hex(12)}"
    unique, count = call_id, 1
    while unique in used:
        count += 1
        unique = f"{call_id}_{count}"
    arguments = clean_text("".join(item.arguments))
    return Call(unique, clean_text(item.name), arguments if arguments.strip() else "{}")


def _native_call(final: Json | None, call: Call) -> Json:
    """Return the item as the API wants it back, with what SCV calls it by."""
    item = {"type": "function_call", "status": "completed"} if final is None else final
    named = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
    return clean_item({**item, **named})
