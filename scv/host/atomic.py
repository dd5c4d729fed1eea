"""Put a file's new content in place at once, below a directory descriptor.

The content goes to a temporary file beside the target, is synced, and appears
under its name in one step. A temporary file is locked while its writer lives,
so one that nobody holds is a leftover of a crash and may be removed.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator

_TEMPORARY = re.compile(r"\.scv-[0-9a-f]{12}\.tmp")
_NO_LINKS_HERE = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)


def install_new(directory: int, name: str, content: bytes) -> None:
    """Make a file that must not exist yet; its mode is 0666 without the umask's bits.

    Raises:
        FileExistsError: The name was taken, be it an instant ago.
        OSError: As the system says; the temporary file is gone.
    """
    with _temporary(directory, 0o666) as (temporary, fd):
        _fill(fd, content)
        try:
            os.link(
                temporary,
                name,
                src_dir_fd=directory,
                dst_dir_fd=directory,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno not in _NO_LINKS_HERE:
                raise
            # A file system without hard links: reserve the name, then fill it.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o666, dir_fd=directory))
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def install_over(directory: int, name: str, content: bytes, *, like: int) -> None:
    """Exchange a file's content; mode, owner and attributes come from `like`.

    Raises:
        OSError: As the system says; the old content is intact, the temporary gone.
    """
    with _temporary(directory, 0o600) as (temporary, fd):
        _fill(fd, content)
        _copy_attributes(like, fd)
        os.fsync(fd)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)


def remove_stray_files(root: str) -> int:
    """Remove temporary files below `root` whose writer is gone; returns how many.

    Blocks for the time of a walk through all directories; follows no link.
    """
    removed = 0
    for _, _, files, directory in os.fwalk(root, follow_symlinks=False):
        for name in files:
            if _TEMPORARY.fullmatch(name) and _remove_if_stray(directory, name):
                removed += 1
    return removed


def _remove_if_stray(directory: int, name: str) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=directory)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return False
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=directory)
    except OSError:  # its writer lives, or somebody else removed it
        return False
    finally:
        os.close(fd)
    return True


@contextlib.contextmanager
def _temporary(directory: int, mode: int) -> Iterator[tuple[str, int]]:
    """Make a locked temporary file; it is gone afterwards unless it was renamed."""
    while True:
        name = f".scv-{os.urandom(6).hex()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, mode, dir_fd=directory)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # taken for a leftover in this very instant
                continue
            except OSError:  # a file system without locks: nobody else removes it
                pass
            if os.fstat(fd).st_nlink == 0:
                continue
            yield name, fd
            return
        finally:
            os.close(fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)


def _fill(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.fsync(fd)


def _copy_attributes(source: int, target: int) -> None:
    """Carry over owner, extended attributes (access lists among them) and mode bits."""
    old, new = os.fstat(source), os.fstat(target)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(target, old.st_uid, old.st_gid)
        except PermissionError:  # not ours to give away; the group alone may be
            with contextlib.suppress(PermissionError):
                os.fchown(target, -1, old.st_gid)
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(source):
                with contextlib.suppress(OSError):
                    os.setxattr(target, name, os.getxattr(source, name))
    os.fchmod(target, stat.S_IMODE(old.st_mode))
