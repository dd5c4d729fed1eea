"""JSON-RPC 2.0 between two equal ends: frames, messages, the peer, its streams."""

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
