"""Unix sockets of one person: private from their first instant, at any path length.

Loads next to nothing, because the byte pipe to a server starts with it.
"""

import os
import socket
import stat
import sys

BACKLOG = 128
"""Connections that may wait to be accepted; one start of an editor makes a few."""

CONNECT_SECONDS = 5
"""Patience with a server that has no room for one more connection yet."""

_ADDRESS_BYTES = 107 if sys.platform == "linux" else 103
"""Longest path in an address: `sun_path` less its end. Source: unix(7), unix(4)."""


class Credentials:
    """Who is at the other end; `pid` is 0 where it cannot be seen from here."""

    def __init__(self, pid: int, uid: int) -> None:
        self.pid = pid
        self.uid = uid


def listen(path: str) -> socket.socket:
    """Listen on a new socket of mode 0600, in place of one that a dead server left.

    The caller holds the lock that keeps other servers from this path. Sets the
    umask for a moment, so no other thread may be making files.

    Raises:
        Refused: Something that is no socket has this name, or the path is too long.
        OSError: As the system says.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise _refused(f"{path} is no socket; move it away.")
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address = _Address(path)
    try:
        before = os.umask(0o177)
        try:
            listener.bind(address.text)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        address.close()
    return listener


def connect(path: str) -> socket.socket | None:
    """Connect to the server at a path; None when nobody listens there.

    Raises:
        Refused: Another person listens there, or the path is too long.
        OSError: As the system says.
    """
    try:
        address = _Address(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _limit_wait(client, CONNECT_SECONDS)
        client.connect(address.text)
        _limit_wait(client, 0)
        if credentials_of(client).uid != os.geteuid():
            raise _refused(f"another user listens at {path}.")
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        client.close()
        return None
    except BaseException:
        client.close()
        raise
    finally:
        address.close()
    return client


def credentials_of(connected: socket.socket) -> Credentials:
    """Tell which process and user were at the other end when it connected.

    Source: unix(7), SO_PEERCRED; on macOS unix(4), LOCAL_PEERPID, and sys/ucred.h.
    """
    if sys.platform == "linux":
        packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = memoryview(packed).cast("i")
        return Credentials(pid, uid % 2**32)
    sol_local, local_peercred, local_peerpid = 0, 1, 2
    packed = connected.getsockopt(sol_local, local_peercred, 76)
    _, uid = memoryview(packed)[:8].cast("I")
    return Credentials(connected.getsockopt(sol_local, local_peerpid), uid)


class _Address:
    """A spelling of a path that fits into a socket address, until it is closed."""

    def __init__(self, path: str) -> None:
        self.text = path
        self._folder = -1
        if len(os.fsencode(path)) <= _ADDRESS_BYTES:
            return
        if sys.platform != "linux":
            raise _refused(
                f"{path} is longer than {_ADDRESS_BYTES} bytes, too long for a socket;"
                " choose a shorter home: --scv-home, or SCV_HOME."
            )
        folder, name = os.path.split(path)
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        self._folder = os.open(folder, flags)
        self.text = f"/proc/self/fd/{self._folder}/{name}"

    def close(self) -> None:
        """Let go of the directory."""
        if self._folder >= 0:
            os.close(self._folder)


def _limit_wait(client: socket.socket, seconds: int) -> None:
    """Bound the system's own waiting; 0 takes the bound away again.

    A socket's `settimeout` does not do it: Linux tells a non-blocking connect to a
    Unix socket without room EAGAIN, and nothing wakes it later.
    """
    import struct

    bound = struct.pack("@ll", seconds, 0)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)


def _refused(message: str) -> Exception:
    from scv.errors import Refused  # it loads typing, which costs as much as Python

    return Refused(message)
