"""`scv exec --json`: one event a line, for programs."""

import json
from typing import Any

from scv.cli.plain import Writes

Json = dict[str, Any]


class JsonLines:
    """Prints events of one session; ranges without events belong to the next line."""

    def __init__(self, out: Writes, *, is_new: bool) -> None:
        """Print to `out`; the lines of a new session begin with its first number."""
        self._out = out
        self._next = 1 if is_new else 0  # first number not printed; 0 unknown

    def take(self, batch: Json, events: tuple[Json, ...]) -> None:
        """Print what is new; an `OnEvents` of a followed session."""
        if not events:
            return
        head = {"sessionId": batch["sessionId"], "to": batch["to"]}
        head["from"] = self._next or batch["from"]
        self._next = batch["to"] + 1
        lines = [json.dumps({**head, **event}) for event in events]
        self._out.write("".join(f"{line}\n" for line in lines))
