"""Files below one directory, reached through directory descriptors only.

Every operation opens the workspace anew and walks the path component by
component with `O_NOFOLLOW`. A link is read here, never by the kernel, and its
target is walked again from where it stands (or from the workspace, for an
absolute target that lies inside), so a path cannot leave the workspace however
fast links are exchanged meanwhile. Checks on path text only give better
messages; nothing depends on them.

All functions block; callers run them in a thread.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from scv.errors import BadArguments, LimitExceeded, NotFound, Refused, Stale, ToolError
from scv.host.atomic import install_new, install_over

_MAX_LINKS = 40  # what Linux itself allows in one path: path_resolution(7)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class _Place:
    """The end of a walk: `name` in `directory`; `info` is None if nothing is there.

    `directory` is None when a parent is missing.
    """

    directory: int | None
    name: str
    path: str
    info: os.stat_result | None


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
        with self._walk(path, follow=follow) as place:
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
        with self._walk(path, missing="report") as place:
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
        with self._walk(path) as place:
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
        with self._walk(path, missing="report") as place:
            return place.path

    def is_entry(self, path: str) -> bool:
        """Tell whether a path names something without any link on the way."""
        try:
            with self._walk(path, follow=False) as place:
                return place.info is not None
        except ToolError:
            return False

    def open_directory(self, path: str) -> int:
        """Open a directory for a child process to start in; the caller closes it.

        Raises:
            ToolError: It is missing, no directory, or outside.
        """
        with self._walk(path) as place, _reasons(path):
            if place.info is None:
                raise NotFound(f"{path}: no such directory")
            return os.open(place.name, _DIRECTORY, dir_fd=place.directory)

    # --- writing ------------------------------------------------------------

    def create(self, path: str, content: bytes) -> None:
        """Install a new file; parents are made. Exclusive at the moment it appears.

        Takes a path without links, as `inspect` gives it.

        Raises:
            Refused: Something has that name by now, or a link is on the path.
            ToolError: The system refused; nothing was left behind.
        """
        with self._walk(path, follow=False, missing="make") as place, _reasons(path):
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
        with self._walk(path, follow=False) as place, _reasons(path):
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

    # --- walking ------------------------------------------------------------

    def _open_root(self) -> int:
        try:
            return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("the workspace directory does not exist any more") from None
        except OSError as error:
            raise ToolError(
                f"the workspace directory cannot be opened: {error.strerror}"
            ) from error

    @contextmanager
    def _walk(
        self, path: str, *, follow: bool = True, missing: str = "fail"
    ) -> Iterator[_Place]:
        """Walk to the last component, following links as the module says.

        `missing` is what to do about a parent that does not exist: `fail`,
        `make` it, or `report` the place without a descriptor.
        """
        pending = split_path(path)[::-1]
        done: list[str] = []
        links = _MAX_LINKS if follow else 0
        here = self._open_root()
        try:
            while pending:
                name = pending.pop()
                if name == "..":  # only a link's target can bring this
                    if not done:
                        self._re_enter(pending, path)
                    # Names walked so far are taken again: a descriptor's own ".."
                    # could be moved elsewhere meanwhile.
                    pending.extend(done[-2::-1] if len(done) > 1 else [])
                    done = []
                    here = _swap(here, self._open_root())
                    continue
                with _reasons(path):
                    if pending:
                        step = _enter(name, here)
                        if step is not None:
                            here = _swap(here, step)
                            done.append(name)
                            continue
                    info = _lstat(name, here)
                if info is not None and stat.S_ISLNK(info.st_mode):
                    if links == 0:
                        raise Refused(
                            f"{path}: too many links on the path"
                            if follow
                            else f"{path}: a part of the path became a link meanwhile"
                        )
                    links -= 1
                    with _reasons(path):
                        target = os.readlink(name, dir_fd=here)
                    if target.startswith("/"):
                        pending.extend(self._inside(target, path)[::-1])
                        done = []
                        here = _swap(here, self._open_root())
                    else:
                        pending.extend(_components(target)[::-1])
                    continue
                if not pending:
                    yield _Place(here, name, "/".join((*done, name)), info)
                    return
                if info is not None:
                    if not stat.S_ISDIR(info.st_mode):
                        raise ToolError(
                            f"{path}: {'/'.join((*done, name))} is not a directory"
                        )
                elif missing == "make":
                    with _reasons(path):
                        _make_directory(name, here)
                elif missing == "report" and ".." not in pending:
                    rest = (*done, name, *pending[::-1])
                    yield _Place(None, rest[-1], "/".join(rest), None)
                    return
                else:
                    raise NotFound(f"{path}: no such file or directory")
                pending.append(name)
            yield _Place(here, ".", "/".join(done), os.fstat(here))
        finally:
            os.close(here)

    def _re_enter(self, pending: list[str], path: str) -> None:
        """Climb above the workspace and come back in, or refuse; rewrites `pending`.

        A link such as `../ws/x` in the workspace `ws` stays inside.
        """
        above = os.path.dirname(os.path.realpath(self.root))
        while pending and pending[-1] == "..":
            pending.pop()
            above = os.path.dirname(above)
        target = os.path.join(above, *pending[::-1])
        pending[:] = self._inside(target, path)[::-1]

    def _inside(self, target: str, path: str) -> list[str]:
        """Turn an absolute link target into components below the workspace."""
        for root in (self.root, os.path.realpath(self.root)):
            if target == root or target.startswith(root.rstrip("/") + "/"):
                return _components(target[len(root) :])
        home = os.stat(self.root)
        parts = target.split("/")
        for count in range(2, len(parts) + 1):  # another spelling of the workspace?
            try:
                info = os.stat("/".join(parts[:count]))
            except (OSError, ValueError):
                break
            if (info.st_dev, info.st_ino) == (home.st_dev, home.st_ino):
                return _components("/".join(parts[count:]))
        raise Refused(
            f"{path}: leads outside the workspace through a link; "
            "only links to places inside it are followed"
        )


def split_path(path: str) -> list[str]:
    """Split a workspace-relative path, taken literally, into its components.

    Raises:
        BadArguments: Empty, absolute, with `..`, with NUL, or not UTF-8 text.
    """
    advice = "send a path relative to the workspace, such as src/main.py"
    if not path:
        raise BadArguments(f"path is empty: {advice}", field="path")
    if "\0" in path:
        raise BadArguments(f"path contains a NUL character: {advice}", field="path")
    if not path.isascii():
        try:
            path.encode()
        except UnicodeEncodeError:
            raise BadArguments(
                f"path is not valid Unicode text: {advice}", field="path"
            ) from None
    if path.startswith("/"):
        raise BadArguments(
            f"path is absolute: {advice} (without the workspace's own directory)",
            field="path",
        )
    parts = _components(path)
    if ".." in parts:
        raise BadArguments(
            f"path contains `..`, which is never followed: {advice}", field="path"
        )
    return parts


def path_of_directory(directory: int) -> str:
    """Name an open directory for `chdir`, by descriptor where the system can."""
    path = f"/proc/self/fd/{directory}"
    if os.path.isdir(path):
        return path
    import fcntl

    get_path: int = fcntl.F_GETPATH  # type: ignore[attr-defined]  # macOS only
    return os.fsdecode(fcntl.fcntl(directory, get_path, bytes(1024)).rstrip(b"\0"))


def normal_path(path: str) -> str:
    """Spell a workspace-relative path without empty and `.` components.

    Raises:
        BadArguments: As `split_path`.
    """
    return "/".join(split_path(path)) or "."


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


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _swap(old: int, new: int) -> int:
    os.close(old)
    return new


def _enter(name: str, directory: int) -> int | None:
    """Open a subdirectory; None when it is missing, a link, or no directory."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            return None
        raise


def _lstat(name: str, directory: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _make_directory(name: str, directory: int) -> None:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return
    os.fsync(directory)


def _open_regular(place: _Place, path: str) -> OpenFile:
    """Open what a walk found; its type is checked before and after."""
    if place.info is None:
        raise NotFound(f"{path}: no such file")
    if not stat.S_ISREG(place.info.st_mode):
        raise _not_regular(place.info, path)
    with _reasons(path):
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


@contextmanager
def _reasons(path: str) -> Iterator[None]:
    """Turn the system's errors into ours, with its reason and the path as given."""
    try:
        yield
    except OSError as error:
        make: Callable[[str], ToolError] = ToolError
        if error.errno in (errno.ENOENT, errno.ESTALE):
            make = NotFound
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP):
            make = Refused
        elif error.errno in (errno.ENAMETOOLONG, errno.EFBIG):
            make = LimitExceeded
        reason = error.strerror or str(error)
        raise make(f"{path}: {reason[:1].lower()}{reason[1:]}") from error
