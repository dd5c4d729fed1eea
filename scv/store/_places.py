"""Where the store lives: private folders and files on a local file system."""

import os
import sys

from scv.errors import StoreError
from scv.host.private import open_private, private_directory

_REMOTE = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph"),
        *("lustre", "gfs2", "ocfs2", "beegfs", "orangefs", "pvfs2", "gpfs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph"),
        *("fuse.davfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.gvfsd-fuse", "davfs"),
        *("fuse.curlftpfs", "fuse.smbnetfs", "fuse.beegfs", "fuse.juicefs"),
    }
)
"""Types as in the mount table; sandboxes whose root is 9p are local all the same."""


def make_private_folder(path: str) -> None:
    """Make a folder, and those above it, for this user alone; its name is on disk.

    Raises:
        Refused: It is somebody else's, or no folder.
        OSError: As the system says.
    """
    parent = os.path.dirname(os.path.abspath(path))
    is_new = not os.path.isdir(path)
    if is_new and not os.path.isdir(parent):
        make_private_folder(parent)
    private_directory(path)
    if is_new:
        sync_folder(parent)


def make_private_file(path: str) -> None:
    """Make sure of a file for this user alone; an empty one when there is none.

    One that exists is not opened: closing it again would release the locks that
    this process holds on it, as fcntl locks go.

    Raises:
        OSError: As the system says.
    """
    if os.path.lexists(path):
        if os.stat(path).st_mode & 0o077:
            os.chmod(path, 0o600)
        return
    fd = open_private(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Put the names in a folder on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refuse_remote(path: str) -> None:
    """Refuse a network file system: its locks and shared memory do not hold.

    Raises:
        StoreError: Names the path, the type, and what to do.
    """
    kind = _mac_type(path) if sys.platform == "darwin" else _linux_type(path)
    if kind is not None:
        raise StoreError(
            f"{path} is on a network file system ({kind}), where a database can be"
            " damaged; set SCV_HOME to a folder on a local disk"
        )


def remote_type(mounts: str, device: str, path: str) -> str | None:
    """Find the type of the mount that holds `path`, if it is a remote one.

    Args:
        mounts: Text of `/proc/self/mountinfo`.
        device: The path's device as `major:minor`.
        path: Real path, to choose where the device is not listed (btrfs).

    Source: proc(5), "/proc/pid/mountinfo".
    """
    best, found = -1, ("", "")
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if path != point and not path.startswith(f"{point}/"):
            continue
        score = len(point) + (1 << 20 if fields[2] == device else 0)
        if score >= best:  # of two mounts on one point the later one is on top
            best, found = score, (kind[0], kind[2])
    kind_name, options = found
    if kind_name in _REMOTE:
        return kind_name
    if kind_name == "9p" and "aname=drvfs" in options:
        return "9p, a Windows drive"
    return None


def _linux_type(path: str) -> str | None:
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as file:
            mounts = file.read()
    except OSError:
        return None
    device = os.stat(path).st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    return remote_type(mounts, name, os.path.realpath(path))


def _mac_type(path: str) -> str | None:
    """Ask statfs: flag 0x1000 (MNT_LOCAL) is missing on a network file system.

    Source: statfs(2) of macOS, the form with 64-bit inodes.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "statfs$INODE64", None) or libc.statfs
    buffer = ctypes.create_string_buffer(4096)
    if call(os.fsencode(path), buffer) != 0:
        return None
    flags = int.from_bytes(buffer.raw[64:68], sys.byteorder)
    if flags & 0x1000:
        return None
    return buffer.raw[72:88].partition(b"\0")[0].decode("ascii", "replace")
