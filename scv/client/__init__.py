"""The Python client: start or reach a server, call it, follow its sessions.

async with start_server() as stream, connect(stream, name="mine") as client:
    session = await client.create_session("/srv/app")
    started = await session.prompt("run the tests")
    turn = await session.ended(started["turnId"])

A name is loaded when it is first used: commands that live for a moment need only a few.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scv.client.child import SERVER_ARGV, start_server
    from scv.client.client import Client, OnApproval, connect
    from scv.client.decision import DEFER, decide
    from scv.client.inert import inert, inert_line
    from scv.client.mirror import Applied, Mirror
    from scv.client.session import FollowedSession
    from scv.rpc import connect_unix

__all__ = [
    "DEFER",
    "SERVER_ARGV",
    "Applied",
    "Client",
    "FollowedSession",
    "Mirror",
    "OnApproval",
    "connect",
    "connect_unix",
    "decide",
    "inert",
    "inert_line",
    "start_server",
]

_PLACES = {
    "SERVER_ARGV": "scv.client.child",
    "start_server": "scv.client.child",
    "Client": "scv.client.client",
    "OnApproval": "scv.client.client",
    "connect": "scv.client.client",
    "DEFER": "scv.client.decision",
    "decide": "scv.client.decision",
    "inert": "scv.client.inert",
    "inert_line": "scv.client.inert",
    "Applied": "scv.client.mirror",
    "Mirror": "scv.client.mirror",
    "FollowedSession": "scv.client.session",
    "connect_unix": "scv.rpc",
}


def __getattr__(name: str) -> Any:
    """Load the module that a name is from."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(__import__(place, fromlist=[name]), name)
    globals()[name] = value
    return value
