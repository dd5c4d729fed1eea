"""Files and directories of one person only, whatever the umask says."""

import contextlib
import os
import stat

from scv.errors import Refused

_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


def private_directory(path: str) -> None:
    """Make a directory, parents included, that only its owner may enter.

    One that exists is tightened.

    Raises:
        Refused: It belongs to somebody else, or is no directory.
    """
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        private_directory(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, _DIRECTORY_MODE)
    try:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # a umask took our own bits away, or it is not ours
        if os.lstat(path).st_uid != os.geteuid():
            raise Refused(f"{path} belongs to another user.") from None
        os.chmod(path, _DIRECTORY_MODE)
        return
    except NotADirectoryError as error:
        raise Refused(f"{path} is not a directory.") from error
    try:
        _tighten(directory, path, _DIRECTORY_MODE)
    finally:
        os.close(directory)


def open_private(path: str, flags: int = os.O_RDWR) -> int:
    """Open a file that only its owner may read, creating it where it is missing.

    A link at the end of the path is never followed; the descriptor is not inherited.

    Raises:
        Refused: It is a link, no regular file, or belongs to somebody else.
    """
    flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(path, flags, _FILE_MODE)
    except OSError as error:
        if os.path.islink(path):
            raise Refused(f"{path} is a symbolic link.") from error
        if os.path.exists(path) and not os.path.isfile(path):
            raise Refused(f"{path} is not a regular file.") from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Refused(f"{path} is not a regular file.")
        _tighten(file, path, _FILE_MODE)
    except BaseException:
        os.close(file)
        raise
    return file


def write_private(path: str, data: bytes) -> None:
    """Replace a small private file at once, and have it on disk before returning.

    Readers see the old content or the new, never a part; a link at the end of the
    path is replaced, not followed.
    """
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".scv-{os.urandom(8).hex()}.tmp")
    file = open_private(temporary, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(file)
        os.rename(temporary, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _tighten(file: int, path: str, mode: int) -> None:
    info = os.fstat(file)
    if info.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to another user.")
    if stat.S_IMODE(info.st_mode) != mode:
        os.fchmod(file, mode)
