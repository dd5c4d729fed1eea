"""Open `sessions.db`: alone or beside others, of any version, damaged or not."""

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scv.errors import Refused, StoreError
from scv.store._locks import StoreLock
from scv.store._places import make_private_file, make_private_folder, refuse_remote
from scv.store._rows import DamagedRow
from scv.store._schema import (
    FILE_NAME,
    MIGRATIONS,
    SALVAGED,
    lay_out,
    migrate,
    version,
)

if TYPE_CHECKING:
    import sqlite3

_BUSY_SECONDS = 10
_CHECKED_AT_OPEN_BYTES = 8 << 20
"""Up to here a full check takes about 10 ms; larger files are checked when idle."""
_LOG_PAGES = 8_000
"""The log is carried over in idle moments; at this length, at the next commit."""
_KEPT_LOG_BYTES = 8 << 20
_WRITTEN_ANEW_BYTES = 512 << 20
"""Takes some eight seconds, once."""

# Primary result codes. Source: https://www.sqlite.org/rescode.html
_ERROR, _BUSY, _LOCKED, _READ_ONLY, _IO, _CORRUPT, _FULL = 1, 5, 6, 8, 10, 11, 13
_CANNOT_OPEN, _NO_DATABASE = 14, 26


class Damaged(Exception):
    """The file is not what was written."""


@dataclass(slots=True)
class Database:
    """An open database, used by one thread, and the lock that says it is in use."""

    folder: str
    connection: "sqlite3.Connection"
    lock: StoreLock
    is_checked: bool

    @property
    def path(self) -> str:
        """The main file."""
        return f"{self.folder}/{FILE_NAME}"

    def close(self) -> None:
        """Close; the last of all processes folds the log into the main file."""
        try:
            self.connection.close()
        finally:
            self.lock.release()

    def mend(self) -> str:
        """Salvage a database that turned out to be damaged, and open the new one.

        Returns the sentence that tells about it.

        Raises:
            StoreError: Other processes use it, or the disk refuses.
        """
        with reasons(self.path):
            self.connection.close()
            notice = _mend(self.folder, self.lock)
            self.connection, self.is_checked = _connect(self.path, self.lock)
            self.lock.share()
        return notice

    def check(self) -> bool:
        """Look whether all pages make sense; takes about a second for a gigabyte."""
        answer = self.connection.execute("PRAGMA integrity_check(1)").fetchone()
        self.is_checked = True
        return bool(answer[0] == "ok")


def open_database(folder: str, notices: list[str]) -> Database:
    """Open or make the database below `folder`.

    Raises:
        StoreError: It cannot be used; names path and remedy.
    """
    path = f"{folder}/{FILE_NAME}"
    with reasons(path):
        make_private_folder(folder)
        refuse_remote(folder)
        lock = StoreLock(folder)
        try:
            if lock.is_exclusive:
                _clear_up(folder, notices)
            try:
                connection, is_checked = _connect(path, lock)
            except Exception as error:
                if not is_damage(error):
                    raise
                notices.append(_mend(folder, lock))
                connection, is_checked = _connect(path, lock)
            lock.share()
        except BaseException:
            lock.release()
            raise
    return Database(folder, connection, lock, is_checked)


def is_damage(error: BaseException) -> bool:
    """Tell whether an error means that the file's content is not what was written."""
    if isinstance(error, Damaged | DamagedRow | UnicodeDecodeError):
        return True  # the last when even the database's own message quotes junk
    if type(error).__module__ != "sqlite3":
        return False
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the module's own: a text that is no text
        return "decode" in str(error)
    if code == _ERROR:  # our statements are right, so the stored schema is not
        return "no such" in str(error) and "module" not in str(error)
    return code & 0xFF in (_CORRUPT, _NO_DATABASE)


def is_refusal(error: BaseException) -> bool:
    """Tell whether the disk or another process refused, so that trying again helps."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (_ERROR, _BUSY, _LOCKED, _READ_ONLY, _IO, _FULL, _CANNOT_OPEN)


@contextlib.contextmanager
def reasons(path: str) -> Iterator[None]:
    """Turn errors of the disk and the database into ours, with path and remedy."""
    import sqlite3

    try:
        yield
    except (OSError, sqlite3.Error, Refused, DamagedRow, Damaged) as error:
        raise StoreError(f"{path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == _FULL or number in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full, nothing of this was kept; free some space"
    if code in (_READ_ONLY, _CANNOT_OPEN) or number in (
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
    ):
        return (
            f"cannot be written ({error}); make it writable for this user,"
            " or set SCV_HOME to another folder"
        )
    if code in (_BUSY, _LOCKED):
        return (
            f"another process kept the store busy for {_BUSY_SECONDS} s,"
            " nothing of this was kept; try again"
        )
    if isinstance(error, Refused):
        return f"{error}; set SCV_HOME to a folder of this user"
    if is_damage(error):
        return "is damaged; restart SCV to have what is readable salvaged"
    return f"{error}, nothing of this was kept; check the disk"


def _connect(path: str, lock: StoreLock) -> tuple["sqlite3.Connection", bool]:
    """Connect and bring to the newest version; also whether the file was checked."""
    import sqlite3

    make_private_file(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=_BUSY_SECONDS)
    try:
        found = _version(connection)
        if found < len(MIGRATIONS):
            _upgrade(connection, path, lock)
        elif found > len(MIGRATIONS):
            raise StoreError(
                f"{path} was written by a newer SCV (store version {found}, this one"
                f" knows {len(MIGRATIONS)}); update SCV, or set SCV_HOME to another"
                " folder. The file was not changed"
            )
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise StoreError(
                f"{path}: this file system cannot share memory between processes;"
                " set SCV_HOME to a folder on a local disk"
            )
        connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit={_KEPT_LOG_BYTES}")
        connection.execute("PRAGMA fullfsync=1")  # these two matter on macOS only
        connection.execute("PRAGMA checkpoint_fullfsync=1")
        is_small = os.path.getsize(path) <= _CHECKED_AT_OPEN_BYTES
        if is_small and found:
            answer = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if answer[0] != "ok":
                raise Damaged(answer[0])
    except BaseException:
        connection.close()
        raise
    return connection, is_small


def _version(connection: "sqlite3.Connection") -> int:
    """Read the version; it is written twice, because one flipped bit is an upgrade."""
    found = version(connection)
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return found
    written = connection.execute(
        "SELECT value FROM meta WHERE key='version'"
    ).fetchone()
    if written != (found,):
        raise Damaged("version")
    return found


def _upgrade(connection: "sqlite3.Connection", path: str, lock: StoreLock) -> None:
    if not lock.try_exclusive():
        raise StoreError(
            f"{path} must be upgraded, but other SCV processes use it;"
            " end them and start again"
        )
    if version(connection) == 1:
        _lay_out_again(connection, path)
    lay_out(connection)
    connection.execute("PRAGMA journal_mode=WAL")
    migrate(connection)


def _lay_out_again(connection: "sqlite3.Connection", path: str) -> None:
    """Write a file anew whose free pages could not be given back.

    One that is too large to wait for, or for the disk, stays as it is: its free
    pages are used again, but not given back.
    """
    import sqlite3

    if os.path.getsize(path) > _WRITTEN_ANEW_BYTES:
        return
    with contextlib.suppress(sqlite3.Error):
        # The layout cannot change while there is a log.
        connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        lay_out(connection)
        connection.execute("VACUUM")


def _mend(folder: str, lock: StoreLock) -> str:
    if not lock.try_exclusive():
        raise StoreError(
            f"{folder}/{FILE_NAME} is damaged, but other SCV processes use it;"
            " end them and start again, then what is readable is salvaged"
        )
    from scv.store._salvage import salvage

    return salvage(folder)


def _clear_up(folder: str, notices: list[str]) -> None:
    """Look at what a crash may have left; the caller is alone."""
    if any(name.startswith(SALVAGED) for name in os.listdir(folder)):
        from scv.store._salvage import finish

        finish(folder)
    if os.path.exists(f"{folder}/{FILE_NAME}-wal"):
        from scv.store._pages import log_tail

        torn = log_tail(f"{folder}/{FILE_NAME}-wal")
        if torn:
            notices.append(
                f"{folder}/{FILE_NAME}-wal: the last {torn} bytes were cut or never"
                " finished and are left out; everything before them is there"
            )
