"""Walk a path below a directory, one component at a time, never leaving it.

A link is read here, never by the kernel, and its target is walked again from where
it stands (or from the root, for an absolute target that lies inside). Each step is
an `openat` with `O_NOFOLLOW`, so nothing depends on checks of path text or on
what links do meanwhile.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scv.errors import BadArguments, LimitExceeded, NotFound, Refused, ToolError
from scv.values import frozen

_MAX_LINKS = 40  # what Linux itself allows in one path: path_resolution(7)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class Place:
    """The end of a walk: `name` in `directory`; `info` is None if nothing is there.

    `directory` is None when a parent is missing.
    """

    directory: int | None
    name: str
    path: str
    info: os.stat_result | None


def _open_root(root: str) -> int:
    try:
        return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound("the workspace directory does not exist any more") from None
    except OSError as error:
        raise ToolError(
            f"the workspace directory cannot be opened: {error.strerror}"
        ) from error


@contextmanager
def walk(
    root: str, path: str, *, follow: bool = True, missing: str = "fail"
) -> Iterator[Place]:
    """Walk to the last component, following links as the module says.

    `missing` is what to do about a parent that does not exist: `fail`,
    `make` it, or `report` the place without a descriptor.
    """
    pending = split_path(path)[::-1]
    done: list[str] = []
    links = _MAX_LINKS if follow else 0
    here = _open_root(root)
    try:
        while pending:
            name = pending.pop()
            if name == "..":  # only a link's target can bring this
                if not done:
                    _re_enter(root, pending, path)
                # Names walked so far are taken again: a descriptor's own ".."
                # could be moved elsewhere meanwhile.
                pending.extend(done[-2::-1] if len(done) > 1 else [])
                done = []
                here = _swap(here, _open_root(root))
                continue
            with reasons(path):
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
                with reasons(path):
                    target = os.readlink(name, dir_fd=here)
                if target.startswith("/"):
                    pending.extend(_inside(root, target, path)[::-1])
                    done = []
                    here = _swap(here, _open_root(root))
                else:
                    pending.extend(_components(target)[::-1])
                continue
            if not pending:
                yield Place(here, name, "/".join((*done, name)), info)
                return
            if info is not None:
                if not stat.S_ISDIR(info.st_mode):
                    raise ToolError(
                        f"{path}: {'/'.join((*done, name))} is not a directory"
                    )
            elif missing == "make":
                with reasons(path):
                    _make_directory(name, here)
            elif missing == "report" and ".." not in pending:
                rest = (*done, name, *pending[::-1])
                yield Place(None, rest[-1], "/".join(rest), None)
                return
            else:
                raise NotFound(f"{path}: no such file or directory")
            pending.append(name)
        yield Place(here, ".", "/".join(done), os.fstat(here))
    finally:
        os.close(here)


def _re_enter(root: str, pending: list[str], path: str) -> None:
    """Climb above the workspace and come back in, or refuse; rewrites `pending`.

    A link such as `../ws/x` in the workspace `ws` stays inside.
    """
    above = os.path.dirname(os.path.realpath(root))
    while pending and pending[-1] == "..":
        pending.pop()
        above = os.path.dirname(above)
    target = os.path.join(above, *pending[::-1])
    pending[:] = _inside(root, target, path)[::-1]


def _inside(root: str, target: str, path: str) -> list[str]:
    """Turn an absolute link target into components below the workspace."""
    for spelling in (root, os.path.realpath(root)):
        if target == spelling or target.startswith(spelling.rstrip("/") + "/"):
            return _components(target[len(spelling) :])
    home = os.stat(root)
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


def normal_path(path: str) -> str:
    """Spell a workspace-relative path without empty and `.` components.

    Raises:
        BadArguments: As `split_path`.
    """
    return "/".join(split_path(path)) or "."


@contextmanager
def reasons(path: str) -> Iterator[None]:
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


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _swap(old: int, new: int) -> int:
    os.close(old)
    return new


def _enter(name: str, directory: int) -> int | None:
    """Open a subdirectory; None when it is missing, a link, or no directory."""
    try:
        return os.open(name, DIRECTORY, dir_fd=directory)
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
