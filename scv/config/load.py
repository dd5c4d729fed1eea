"""Merge the layers of configuration, lowest first.

defaults < user file < project file < explicit file < environment < flags.
A project file is untrusted: keys it may not set, or values that loosen, are
ignored with a notice. Errors name file, line and key, never the content.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from scv.config.paths import Home, project_file
from scv.config.settings import APPROVAL_POLICIES, Settings, walk_fields
from scv.errors import ConfigError
from scv.shapes import Misfit, fit
from scv.values import frozen

MAX_FILE_BYTES = 1024 * 1024
ENVIRONMENT_KEYS = {
    "SCV_MODEL": "model",
    "SCV_BASE_URL": "base_url",
    "SCV_API_KEY_ENV": "api_key_env",
}

Table = dict[str, Any]


@frozen
class Layer:
    """One source of settings; `name` is a file or a word such as `environment`."""

    name: str
    table: Table


@frozen
class Loaded:
    """Settings with the layer each value came from, and what was ignored."""

    settings: Settings
    origins: Mapping[str, str]
    notices: tuple[str, ...]
    profile_overrides: Mapping[str, str] = field(default_factory=dict)


def load(
    home: Home,
    *,
    workspace: str | None,
    environment: Mapping[str, str],
    config_file: str | None = None,
    flags: Table | None = None,
) -> Loaded:
    """Read and merge every layer.

    Args:
        flags: Settings from the command line as a nested table.

    Raises:
        ConfigError: A file of the user is unreadable, not private, or wrong.
    """
    notices: list[str] = []
    layers: list[Layer] = []
    user = read_file(home.config_file, private=True)
    if user is not None:
        layers.append(Layer(str(home.config_file), user))
    project = None
    if workspace is not None and not _same_file(
        project_file(workspace), home.config_file
    ):
        project = _read_project(workspace, notices)
    explicit = config_file or environment.get("SCV_CONFIG")
    if explicit:
        table = read_file(Path(explicit), private=True)
        if table is None:
            raise ConfigError("there is no such file", file=explicit)
        layers.append(Layer(explicit, table))
    if flags:
        layers.append(Layer("command line", flags))
    for layer in layers:
        _validate(layer)
    merged: Table = {}
    origins: dict[str, str] = {}
    for layer in layers[:1] if user is not None else []:
        _merge(merged, layer, origins)
    if project is not None:
        base = _validate(Layer("defaults", merged))
        _merge(merged, _tightened(project, base, notices), origins)
    for layer in layers[1:] if user is not None else layers:
        _merge(merged, layer, origins)
    settings = _validate(Layer("merged", merged))
    overrides = {
        key: environment[name]
        for name, key in ENVIRONMENT_KEYS.items()
        if environment.get(name)
    }
    return Loaded(settings, origins, tuple(notices), overrides)


def read_file(path: Path, *, private: bool) -> Table | None:
    """Read one TOML file; None when there is none.

    Raises:
        ConfigError: Too large, not private, not UTF-8, or not TOML.
    """
    try:
        # a pipe of this name must not hold up the server until somebody writes to it
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}.", file=str(path)
        ) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ConfigError("is not a regular file.", file=str(path))
    with open(descriptor, "rb") as stream:
        if private and status.st_mode & 0o077:
            raise ConfigError(
                "can be read by others, and may hold keys.",
                file=str(path),
                remedy=f"Run: chmod 600 {path}",
            )
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"is larger than {MAX_FILE_BYTES} bytes.", file=str(path))
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text.", file=str(path), line=line) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            "is not valid TOML here.",
            file=str(path),
            line=_error_line(str(error), data),
            remedy="Look for a missing quote, bracket or equals sign.",
        ) from None


def _error_line(message: str, data: bytes) -> int:
    _, _, place = message.rpartition("(at line ")
    number = place.partition(",")[0]
    return int(number) if number.isdigit() else data.count(b"\n") + 1


def _same_file(first: Path, second: Path) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def _read_project(workspace: str, notices: list[str]) -> Layer | None:
    path = project_file(workspace)
    real = os.path.realpath(path)
    root = os.path.realpath(workspace)
    if os.path.exists(path) and os.path.commonpath([real, root]) != root:
        notices.append(f"{path} is ignored: it leads out of the workspace")
        return None
    try:
        table = read_file(path, private=False)
    except ConfigError as error:
        notices.append(f"project configuration is ignored: {error.message}")
        return None
    return None if table is None else Layer(str(path), table)


def _validate(layer: Layer) -> Settings:
    try:
        settings: Settings = fit(Settings, layer.table)
    except Misfit as misfit:
        key = ".".join(map(str, misfit.place))
        message, remedy = f"{misfit.reason}.", None
        if misfit.kind == "unexpected_keyword_argument":
            message, remedy = "is no setting.", _nearest(key)
        elif misfit.kind == "dataclass_type":
            message = "Input should be a table of settings."
        raise ConfigError(message, file=layer.name, key=key, remedy=remedy) from None
    return settings


def _nearest(key: str) -> str:
    from difflib import get_close_matches

    keys = [each for each, _ in walk_fields()]
    sections = {each.partition(".")[0] for each in keys}
    for candidate in get_close_matches(key, [*sections, *keys], n=1, cutoff=0.6):
        return f"Did you mean {candidate}?"
    return "See `scv config show` for all settings."


def _merge(into: Table, layer: Layer, origins: dict[str, str]) -> None:
    def merge(target: Table, source: Table, path: str) -> None:
        for key, value in source.items():
            dotted = f"{path}{key}"
            if isinstance(value, dict):
                merge(target.setdefault(key, {}), value, f"{dotted}.")
            else:
                target[key] = value
                origins[dotted] = layer.name

    merge(into, layer.table, "")


def _tightened(project: Layer, base: Settings, notices: list[str]) -> Layer:
    """Keep what a project file may say; the rest becomes notices."""
    rules = {key: entry.metadata["project"] for key, entry in walk_fields()}
    kept: Table = {}
    for section, values in project.table.items():
        for key, value in values.items() if isinstance(values, dict) else ():
            dotted = f"{section}.{key}"
            current = getattr(getattr(base, section, None), key, None)
            problem = _loosens(rules.get(dotted), current, value)
            if problem is None:
                kept.setdefault(section, {})[key] = value
            else:
                notices.append(f"{project.name}: {dotted} is ignored: {problem}")
        if not isinstance(values, dict):
            notices.append(f"{project.name}: {section} is ignored: it is no setting")
    try:
        _validate(Layer(project.name, kept))
    except ConfigError as error:
        notices.append(f"project configuration is ignored: {error.message}")
        return Layer(project.name, {})
    return Layer(project.name, kept)


def _loosens(rule: str | None, current: Any, value: Any) -> str | None:
    """Say why a project file may not set this value; None when it may."""
    match rule:
        case "free":
            return None
        case "lower" if type(value) is int:
            return None if value <= current else f"a project may only lower {current}"
        case "raise" if type(value) is int:
            return None if value >= current else f"a project may only raise {current}"
        case "off" if value is False:
            return None
        case "stricter" if value in APPROVAL_POLICIES:
            order = APPROVAL_POLICIES.index
            if order(value) >= order(current):
                return None
            return f"a project may only be stricter than {current}"
        case None:
            return "it is no setting, or only the user's own configuration may hold it"
        case "forbidden":
            return "only the user's own configuration may set it"
        case _:
            return "a project may not set this value"
