"""Blob files: `blobs/ab/<sha256>`, written once, never changed.

A blob's id is derived from its bytes and MIME type: nobody can name a blob
whose content they do not know.
"""

import contextlib
import hashlib
import os

from scv.errors import NotFound
from scv.host.private import write_private
from scv.store._places import make_private_folder


def blob_id(sha256: str, mime_type: str) -> str:
    """Make the id of bytes with this hash and type: `b_` and 160 bits."""
    mark = f"{sha256}\0{mime_type}".encode("utf-8", "backslashreplace")
    return f"b_{hashlib.sha256(mark).hexdigest()[:40]}"


def write_file(folder: str, data: bytes) -> str:
    """Keep bytes under their SHA-256, which is returned; they are on disk then.

    Raises:
        OSError: As the system says; nothing half-written stays.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    path = _path(folder, sha256)
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_size == len(data):
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


def _path(folder: str, sha256: str) -> str:
    return f"{folder}/blobs/{sha256[:2]}/{sha256}"
