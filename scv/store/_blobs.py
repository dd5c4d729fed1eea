"""Blob files: `blobs/ab/<sha256>`, written once, never changed.

A blob's id is derived from its bytes and MIME type: nobody can name a blob
whose content they do not know.

A file whose hash no row names is an orphan and goes. Whoever writes one holds
`blobs.lock` shared until its row can be seen; whoever removes some holds it
alone, and looks for rows then.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator

from scv.errors import NotFound
from scv.host.private import open_private, write_private
from scv.store._places import make_private_folder


def blob_id(sha256: str, mime_type: str) -> str:
    """Make the id of bytes with this hash and type: `b_` and 160 bits."""
    mark = f"{sha256}\0{mime_type}".encode("utf-8", "backslashreplace")
    return f"b_{hashlib.sha256(mark).hexdigest()[:40]}"


def lock_shared(folder: str) -> int:
    """Keep every blob file from being removed until the descriptor is closed.

    Raises:
        OSError, Refused: As the system says.
    """
    make_private_folder(folder)
    return _lock(folder, fcntl.LOCK_SH)


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Wait until nobody writes blobs, and keep it so.

    Not for the database thread, which those who write wait for.

    Raises:
        OSError, Refused: As the system says.
    """
    fd = _lock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def alone_at_once(folder: str) -> Iterator[None]:
    """Keep everybody from writing blobs, if nobody does.

    Raises:
        BlockingIOError: Somebody does.
        OSError, Refused: As the system says.
    """
    fd = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(fd)


def _lock(folder: str, how: int) -> int:
    fd = open_private(f"{folder}/blobs.lock")
    try:
        fcntl.flock(fd, how)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_file(folder: str, data: bytes) -> str:
    """Keep bytes under their SHA-256, which is returned; they are on disk then.

    Raises:
        OSError: As the system says; nothing half-written stays.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    path = _path(folder, sha256)
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_size == len(data):
            os.utime(path)  # somebody needs it today
            return sha256
    make_private_folder(os.path.dirname(path))
    write_private(path, data)
    return sha256


def read_file(folder: str, sha256: str, offset: int, limit: int) -> bytes:
    """Read a slice; shorter at the end of the file.

    Raises:
        NotFound: The file is gone.
        OSError: As the system says.
    """
    try:
        with open(_path(folder, sha256), "rb") as file:
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError as error:
        raise NotFound("the blob's file is gone from the store") from error


def remove_files(folder: str, hashes: list[str]) -> None:
    """Remove files; the caller is `alone`.

    Raises:
        OSError: As the system says; calling again goes on.
    """
    for sha256 in hashes:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_path(folder, sha256))


def is_older(folder: str, sha256: str, seconds: float) -> bool:
    """Tell whether nobody has put a file again for some time, or it is gone."""
    try:
        return os.stat(_path(folder, sha256)).st_mtime < time.time() - seconds
    except FileNotFoundError:
        return True


def shelves(folder: str) -> list[str]:
    """List the folders that blobs are in."""
    try:
        return sorted(os.listdir(f"{folder}/blobs"))
    except (FileNotFoundError, NotADirectoryError):
        return []


def files_on(folder: str, shelf: str) -> tuple[list[str], list[str]]:
    """List a shelf's blobs by hash, and the paths of what writers left behind."""
    path = f"{folder}/blobs/{shelf}"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = os.listdir(path)
        rest = [f"{path}/{name}" for name in names if name.startswith(".scv-")]
        return [name for name in names if len(name) == 64], rest
    return [], []


def _path(folder: str, sha256: str) -> str:
    return f"{folder}/blobs/{sha256[:2]}/{sha256}"
