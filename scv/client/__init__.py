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
    from scv.client.mirror import Applied, Mirror
    from scv.client.session import FollowedSession
    from scv.client.sockets import stream_over
    from scv.rpc import ByteStream, connect_unix

__all__ = [
    "DEFER",
    "SERVER_ARGV",
    "Applied",
    "ByteStream",
    "Client",
    "FollowedSession",
    "Mirror",
    "OnApproval",
    "connect",
    "connect_unix",
    "decide",
    "start_server",
    "stream_over",
]

_PLACES = {
    "SERVER_ARGV": "scv.client.child",
    "start_server": "scv.client.child",
    "Client": "scv.client.client",
    "OnApproval": "scv.client.client",
    "connect": "scv.client.client",
    "DEFER": "scv.client.decision",
    "decide": "scv.client.decision",
    "Applied": "scv.client.mirror",
    "Mirror": "scv.client.mirror",
    "FollowedSession": "scv.client.session",
    "stream_over": "scv.client.sockets",
    "ByteStream": "scv.rpc",
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
