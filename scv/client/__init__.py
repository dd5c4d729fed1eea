"""The Python client: start or reach a server, call it, follow its sessions.

async with start_server() as stream, connect(stream, name="mine") as client:
    session = await client.create_session("/srv/app")
    started = await session.prompt("run the tests")
    turn = await session.ended(started["turnId"])
"""

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
