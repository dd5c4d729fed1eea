"""Files below one directory, reached through directory descriptors only.

Every operation opens the workspace anew and walks from there (see
`scv.host.walk`), so a path cannot leave it however fast links are exchanged, and
a workspace that was removed and made again works.

All functions block; callers run them in a thread.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from scv.errors import NotFound, Refused, Stale, ToolError
from scv.host.atomic import install_new, install_over
from scv.host.walk import DIRECTORY, Place, reasons, walk
from scv.values import frozen

_CHUNK_BYTES = 1 << 20
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


@frozen
class OpenFile:
    """A regular file, open for reading; `size` is a snapshot, `path` free of links.

    `names` counts the hard links.
    """

    fd: int
    path: str
    size: int
    mode: int
    names: int

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes that lie inside the snapshot; fewer only if the file shrank."""
        length = min(length, self.size - offset)
        parts = []
        while length > 0:
            part = os.pread(self.fd, min(length, _CHUNK_BYTES), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def sha256(self) -> str:
        """Hash the snapshot."""
        digest = hashlib.sha256()
        for offset in range(0, self.size, _CHUNK_BYTES):
            digest.update(self.read(offset, _CHUNK_BYTES))
        return digest.hexdigest()


@frozen
class FileState:
    """What a path names now; `sha256` is None when nothing is there.

    `path` is free of links. `content` is None when the file is absent or longer
    than the caller wanted to hold.
    """

    path: str
    sha256: str | None
    content: bytes | None
    size: int = 0
    names: int = 1


class Workspace:
    """The files below `root`, which may itself be reached through links."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"

    # --- reading ------------------------------------------------------------

    @contextmanager
    def open_file(self, path: str, *, follow: bool = True) -> Iterator[OpenFile]:
        """Open a regular file for reading; with `follow` false a link is refused.

        Raises:
            ToolError: It is missing, no regular file, unreadable, or outside.
        """
        with walk(self.root, path, follow=follow) as place:
            file = _open_regular(place, path)
            try:
                yield file
            finally:
                os.close(file.fd)

    def inspect(self, path: str, *, limit_bytes: int) -> FileState:
        """Say what a change would find at a path, with content up to `limit_bytes`.

        Raises:
            ToolError: A file that must not be changed, no regular file, or outside.
        """
        with walk(self.root, path, missing="report") as place:
            if place.info is None:
                return FileState(place.path, None, None)
            file = _open_regular(place, path)
            try:
                content = None
                if file.size <= limit_bytes:
                    content = file.read(0, file.size)
                    sha256 = hashlib.sha256(content).hexdigest()
                else:
                    sha256 = file.sha256()
                if not os.access(place.name, os.W_OK, dir_fd=place.directory):
                    raise _read_only(path)
                _refuse_read_only(file, path)
                return FileState(place.path, sha256, content, file.size, file.names)
            finally:
                os.close(file.fd)

    def resolve(self, path: str) -> tuple[str, bool]:
        """Follow a path's links; give the real path and whether it is a directory.

        The root's own path is "".

        Raises:
            ToolError: It is missing, neither file nor directory, or outside.
        """
        with walk(self.root, path) as place:
            info = place.info
            if info is None:
                raise NotFound(f"{path}: no such file or directory")
            if not (stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)):
                raise _not_regular(info, path)
            return place.path, stat.S_ISDIR(info.st_mode)

    def real_path(self, path: str) -> str:
        """Follow a path's links as far as things exist.

        Raises:
            ToolError: It leads outside, or through something that is no directory.
        """
        with walk(self.root, path, missing="report") as place:
            return place.path

    def is_entry(self, path: str) -> bool:
        """Tell whether a path names something without any link on the way."""
        try:
            with walk(self.root, path, follow=False) as place:
                return place.info is not None
        except ToolError:
            return False

    def open_directory(self, path: str) -> int:
        """Open a directory for a child process to start in; the caller closes it.

        Raises:
            ToolError: It is missing, no directory, or outside.
        """
        with walk(self.root, path) as place, reasons(path):
            if place.info is None:
                raise NotFound(f"{path}: no such directory")
            return os.open(place.name, DIRECTORY, dir_fd=place.directory)

    # --- writing ------------------------------------------------------------

    def create(self, path: str, content: bytes) -> None:
        """Install a new file; parents are made. Exclusive at the moment it appears.

        Takes a path without links, as `inspect` gives it.

        Raises:
            Refused: Something has that name by now, or a link is on the path.
            ToolError: The system refused; nothing was left behind.
        """
        with (
            walk(self.root, path, follow=False, missing="make") as place,
            reasons(path),
        ):
            if place.info is not None:
                raise already_exists(path)
            assert place.directory is not None
            try:
                install_new(place.directory, place.name, content)
            except FileExistsError:
                raise already_exists(path) from None

    def replace(self, path: str, content: bytes, *, base_sha256: str) -> None:
        """Exchange a file's content at once; mode bits and owner stay.

        Takes a path without links, as `inspect` gives it.

        Raises:
            Stale: The file is not `base_sha256` any more.
            ToolError: The system refused; the old content is intact.
        """
        with walk(self.root, path, follow=False) as place, reasons(path):
            file = _open_regular(place, path)
            try:
                found = file.sha256()
                if found != base_sha256:
                    raise stale(path, expected=base_sha256, found=found)
                _refuse_read_only(file, path)
                assert place.directory is not None
                install_over(place.directory, place.name, content, like=file.fd)
            finally:
                os.close(file.fd)


def path_of_directory(directory: int) -> str:
    """Name an open directory for `chdir`, by descriptor where the system can."""
    path = f"/proc/self/fd/{directory}"
    if os.path.isdir(path):
        return path
    import fcntl

    get_path: int = fcntl.F_GETPATH  # type: ignore[attr-defined]  # macOS only
    return os.fsdecode(fcntl.fcntl(directory, get_path, bytes(1024)).rstrip(b"\0"))


def stale(path: str, *, expected: str, found: str | None) -> Stale:
    """Say that a file changed since the caller last saw it."""
    now = f"its SHA-256 is now {found}" if found else "it does not exist any more"
    return Stale(
        f"{path} is not the file you last saw: expected SHA-256 {expected}, but {now}. "
        "Nothing was changed; read it again.",
        found=found,
    )


def already_exists(path: str) -> Refused:
    """Say that `create` found something at the path."""
    return Refused(f"{path} exists already; nothing was changed")


def _open_regular(place: Place, path: str) -> OpenFile:
    """Open what a walk found; its type is checked before and after."""
    if place.info is None:
        raise NotFound(f"{path}: no such file")
    if not stat.S_ISREG(place.info.st_mode):
        raise _not_regular(place.info, path)
    with reasons(path):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        fd = os.open(place.name, flags, dir_fd=place.directory)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        raise _not_regular(info, path)
    return OpenFile(
        fd, place.path, info.st_size, stat.S_IMODE(info.st_mode), info.st_nlink
    )


def _refuse_read_only(file: OpenFile, path: str) -> None:
    if file.mode & 0o222 == 0:  # asked of the bits, because root may always write
        raise _read_only(path)


def _read_only(path: str) -> Refused:
    return Refused(
        f"{path} is read-only; it was not changed. "
        "If it is meant to be changed, make it writable first (chmod u+w)."
    )


def _not_regular(info: os.stat_result, path: str) -> Refused:
    kind = _KINDS.get(stat.S_IFMT(info.st_mode), "of an unknown type")
    if stat.S_ISDIR(info.st_mode):
        return Refused(f"{path} is a directory; use `list` to see what is in it")
    return Refused(f"{path} is not a regular file ({kind.split(' ', 1)[1]})")
