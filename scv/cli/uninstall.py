"""`scv uninstall`: how to remove SCV, and with `--purge` what it keeps."""

import fcntl
import os
import shutil
import sys
from pathlib import Path

from scv import __version__
from scv.cli.arguments import GlobalOptions, UsageError
from scv.cli.options import home_of
from scv.errors import ScvError

DISTRIBUTION = "scv-agent"
KEPT = ("config.toml", "state")
"""All that SCV ever puts into its home; nothing else there is touched."""


def uninstall(options: GlobalOptions, *, purge: bool, confirmed: bool) -> int:
    """Name what there is; delete the instance's data only when told to, twice.

    Raises:
        ScvError: SCV is running on this data.
        UsageError: Nobody is there to confirm.
    """
    root = home_of(options).root
    mine = [root / name for name in KEPT if os.path.lexists(root / name)]
    _write(f"SCV {__version__}. To remove the program, run:")
    _write(f"  {_removal_command()}")
    if not mine:
        _write(f"There are no sessions and no configuration in {root}.")
        return 0
    _write(f"Sessions and configuration are in {root}:")
    for path in mine:
        _write(f"  {path} ({_size(path)})")
    if not purge:
        _write("They stay. To delete them as well: scv uninstall --purge")
        return 0
    _refuse_while_running(root)
    if not confirmed and not _confirm():
        _write("Nothing was deleted.")
        return 1
    for path in mine:
        _delete(path)
    _write(f"Deleted. {_leave(root)}")
    return 0


def _confirm() -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("nobody is there to confirm; add --yes to delete them.")
    sys.stdout.write("Delete them for good? Type yes: ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() == "yes"


def _refuse_while_running(root: Path) -> None:
    """Look at the lock that every process holds while it uses the sessions."""
    lock = root / "state" / "store.lock"
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ScvError(f"SCV is running on {root}; end it first.") from None
    except FileNotFoundError:
        return


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _leave(root: Path) -> str:
    """Remove the home itself where nothing else is in it."""
    others = sorted(os.listdir(root))
    if others:
        return f"These are not SCV's and stay in {root}: {', '.join(others[:10])}"
    if not root.is_symlink():
        root.rmdir()
    return "Nothing of it is left."


def _removal_command() -> str:
    """Guess how SCV was installed from where this Python lives."""
    prefix = Path(sys.prefix)
    if "pipx" in prefix.parts:
        return f"pipx uninstall {DISTRIBUTION}"
    if prefix.parent.name == "tools" and "uv" in prefix.parts:
        return f"uv tool uninstall {DISTRIBUTION}"
    return f"{sys.executable} -m pip uninstall {DISTRIBUTION}"


def _size(path: Path) -> str:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    total = sum(each.lstat().st_size for each in files if not each.is_dir())
    for unit in ("bytes", "KB", "MB"):
        if total < 10_000:
            return f"{total} {unit}"
        total //= 1000
    return f"{total} GB"


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
