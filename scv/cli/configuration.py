"""`scv config`: every setting, and where its value comes from."""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from scv.cli.arguments import GlobalOptions
from scv.cli.options import embedded_options, home_of
from scv.cli.report import write_error
from scv.client.inert import inert, inert_line

HIDDEN = "(hidden)"


def show(options: GlobalOptions) -> int:
    """Print all settings as they are in the current directory."""
    from scv.config.load import load

    serving = embedded_options(options)
    loaded = load(
        serving.home,
        workspace=os.getcwd(),
        environment=serving.environment,
        config_file=serving.config_file,
        flags=serving.flags,
    )
    rows = [
        (key, value, loaded.origins.get(key, "default"))
        for key, value in _walk(loaded.settings)
    ]
    rows += [
        (f"(the chosen profile).{key}", _shown(value), "environment")
        for key, value in loaded.profile_overrides.items()
    ]
    rows += [
        (f"(this invocation).{key}", _shown(value), "command line")
        for key, value in options.session_config().items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, origin in rows:
        line = f"{key:{widths[0]}}  {value:{min(widths[1], 40)}}  {inert(origin)}"
        sys.stdout.write(f"{line}\n")
    for notice in loaded.notices:
        write_error(f"note: {inert(notice)}")
    return 0


def show_path(options: GlobalOptions) -> int:
    """Print the path of the user's configuration file."""
    path = home_of(options).config_file
    sys.stdout.write(f"{path}\n")
    if not path.exists():
        write_error("It does not exist yet; make it with mode 0600.")
    return 0


def _walk(section: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key with its value as text; secrets are replaced."""
    for field in fields(section):
        value = getattr(section, field.name)
        key = f"{prefix}{field.name}"
        if is_dataclass(value):
            yield from _walk(value, f"{key}.")
        elif isinstance(value, dict) and field.repr:
            for inner, profile in value.items():
                yield from _walk(profile, f"{key}.{inert_line(inner, 100)}.")
        elif not field.repr and value:
            yield key, HIDDEN
        else:
            yield key, _shown(value)


def _shown(value: Any) -> str:
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{inert_line(value, 200)}"' if isinstance(value, str) else str(value)
    return re.sub(r"//[^/@]*@", f"//{HIDDEN}@", text)
