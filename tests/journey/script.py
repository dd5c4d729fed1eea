"""What the model does in the checkout: find the failing test, mend its cause, report.

It knows how to run the quick tests and what kind of mistake it can mend. The test,
the file, the line and the text to change come from the results of its calls.
"""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

QUICK_TESTS = (
    "tests/rpc/test_rpc_messages.py",
    "tests/providers/test_sse_parser.py",
)
PYTEST = "python -m pytest -x -q -p no:cacheprovider"


@dataclass(frozen=True)
class Practice:
    """A practice model that plays the script, as an endpoint with a key."""

    url: str
    key: str


def taken(number: int, pattern: str, group: int, kind: str = "") -> str:
    """Take a group of a pattern from the result of this number."""
    return f"{{{{result:{number}:/{pattern}/:{group}{kind}}}}}"


_FAILED = r"FAILED ([\w\/]+\.py)::(\w+)"
TEST_FILE, TEST_NAME = taken(1, _FAILED, 1), taken(1, _FAILED, 2)
_FAULT = r"(scv\/[\w\/]+\.py):(\d+): ValueError"
FILE, LINE = taken(1, _FAULT, 1), taken(1, _FAULT, 2)
ERROR = taken(1, r"(ValueError: [\w ]+)", 1)
_UNPACKING = r"(\w+), (\w+ = \w+\.\w+)"
FIRST, SECOND = taken(3, _UNPACKING, 1), taken(3, _UNPACKING, 2)
PASSED = taken(6, r"(\d+ passed)", 1)


def call(tool: str, **arguments: Any) -> Json:
    """Write one tool call."""
    return {"call": tool, "arguments": arguments}


SCRIPT: list[Json] = [
    {
        "text": "I run the quick tests and stop at the first that fails.",
        "calls": [call("bash", command=f"{PYTEST} {' '.join(QUICK_TESTS)}")],
    },
    {
        "text": f"{TEST_NAME} fails because of {FILE}. I look at both.",
        "calls": [
            call("search", pattern=f"def {TEST_NAME}", path=TEST_FILE),
            call(
                "read", path=FILE, start_line=taken(1, _FAULT, 2, ":int"), line_count=1
            ),
            call("search", pattern=r"_, \w+ = .*partition\(", path=FILE),
        ],
    },
    {
        "text": "The separator has no name here, as it has elsewhere in this file.",
        "calls": [
            call(
                "edit",
                path=FILE,
                edits=[
                    {"old": f"{FIRST}, {SECOND}", "new": f"{FIRST}, _, {SECOND}"},
                ],
            )
        ],
    },
    {
        "text": "Now the tests of that file, all of them.",
        "calls": [call("bash", command=f"{PYTEST} {TEST_FILE}")],
    },
    {
        "text": f"{TEST_FILE}::{TEST_NAME} failed at {FILE}:{LINE} ({ERROR})."
        f" Mended: {PASSED}."
    },
]
