"""JSON-RPC 2.0 between two equal ends: frames, messages, the peer, its streams.

A name is loaded when it is first used: frames and messages do without an event loop.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scv.rpc.framing import FrameDecoder, encode_frame
    from scv.rpc.memory import MemoryStream, memory_pair
    from scv.rpc.messages import BadMessage, RemoteError, encode_json, parse_message
    from scv.rpc.peer import Peer
    from scv.rpc.ports import ByteStream, Dispatcher, Limits, Params
    from scv.rpc.transports import FdStream, connect_unix, take_stdio

__all__ = [
    "BadMessage",
    "ByteStream",
    "Dispatcher",
    "FdStream",
    "FrameDecoder",
    "Limits",
    "MemoryStream",
    "Params",
    "Peer",
    "RemoteError",
    "connect_unix",
    "encode_frame",
    "encode_json",
    "memory_pair",
    "parse_message",
    "take_stdio",
]

_PLACES = {
    "FrameDecoder": "scv.rpc.framing",
    "encode_frame": "scv.rpc.framing",
    "MemoryStream": "scv.rpc.memory",
    "memory_pair": "scv.rpc.memory",
    "BadMessage": "scv.rpc.messages",
    "RemoteError": "scv.rpc.messages",
    "encode_json": "scv.rpc.messages",
    "parse_message": "scv.rpc.messages",
    "Peer": "scv.rpc.peer",
    "ByteStream": "scv.rpc.ports",
    "Dispatcher": "scv.rpc.ports",
    "Limits": "scv.rpc.ports",
    "Params": "scv.rpc.ports",
    "FdStream": "scv.rpc.transports",
    "connect_unix": "scv.rpc.transports",
    "take_stdio": "scv.rpc.transports",
}


def __getattr__(name: str) -> Any:
    """Load the module that a name is from."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(__import__(place, fromlist=[name]), name)
    globals()[name] = value
    return value
