"""Before the first prompt: which model, which session."""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scv import __version__
from scv.cli.arguments import GlobalOptions
from scv.cli.options import embedded_options
from scv.cli.report import EXIT_USAGE, write_error
from scv.cli.sessions import session_rows, short_path
from scv.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from scv.client import Client
    from scv.config.load import Loaded

POLICY_WORDS = {
    "on-risk": "asks before changes",
    "always": "asks about everything",
    "never": "read only",
}
HEADER_PATH_CHARACTERS = 32
FIRST_WORDS = """\
SCV has no model yet. {remedy}

You can look around first: `practice` is a small program that ships with SCV and stands
in for a model. It needs no key, sends nothing anywhere, and follows simple commands.
"""


def choose_model(
    options: GlobalOptions, *, can_ask: bool, goes_on: bool
) -> GlobalOptions | None:
    """Check that a model is configured, or offer the practice model; None to end.

    A session that `goes_on` may name its own model, so none need be configured.

    Raises:
        ConfigError: The configuration is wrong, or there is none and nobody to ask.
    """
    from scv.config.provider import choose_profile

    loaded = load(options)
    try:
        choose_profile(
            loaded.settings,
            name=options.provider,
            overrides={**loaded.profile_overrides, **_overrides(options)},
        )
    except ConfigError as error:
        is_first_run = error.key == "provider.active" and options.provider is None
        if is_first_run and goes_on:
            return options
        if not (can_ask and is_first_run):
            raise
        lines, _, _ = (error.remedy or "").partition("\nor ")  # what it offers is below
        sys.stdout.write(FIRST_WORDS.format(remedy=lines))
        sys.stdout.write("Use the practice model now? [Y/n] ")
        sys.stdout.flush()
        answer = sys.stdin.readline()
        if not answer or answer.strip().lower() not in ("", "y", "yes"):
            return None
        return replace(options, provider="practice")
    return options


def load(options: GlobalOptions) -> "Loaded":
    """Read the configuration as it is here."""
    from scv.config.load import load as load_layers

    serving = embedded_options(options)
    return load_layers(
        serving.home,
        workspace=os.getcwd(),
        environment=serving.environment,
        config_file=serving.config_file,
        flags=serving.flags,
    )


def header(options: GlobalOptions) -> "RenderableType":
    """Build the line that says where one is and what one talks to."""
    from scv.cli.terminal.blocks import header_block
    from scv.config.provider import choose_profile

    loaded = load(options)
    try:
        chosen = choose_profile(
            loaded.settings,
            name=options.provider,
            overrides={**loaded.profile_overrides, **_overrides(options)},
        )
        name, model = chosen.name, chosen.profile.model
        shown = name if name == model else f"{model} ({name})"
    except ConfigError:  # a session that goes on names its own
        shown = "the session's model"
    return header_block(
        __version__,
        shown,
        short_path(os.getcwd(), HEADER_PATH_CHARACTERS),
        POLICY_WORDS[loaded.settings.tools.approval_policy],
    )


def _overrides(options: GlobalOptions) -> dict[str, Any]:
    given = {"model": options.model, "base_url": options.base_url}
    return {name: value for name, value in given.items() if value}


async def choose_session(client: "Client", *, newest: bool) -> str | None:
    """Find the session to go on with; None begins a new one."""
    page = await client.list_sessions(workspace=os.getcwd(), limit=1 if newest else 30)
    sessions = page["sessions"]
    if not sessions:
        sys.stdout.write("No session was started in this directory yet.\n")
        return None
    if newest:
        return sessions[0]["id"]
    for number, (when, _, title) in enumerate(session_rows(sessions), 1):
        sys.stdout.write(f"{number:3} {when:>14}  {title}\n")
    sys.stdout.write("Number (Enter begins a new session): ")
    sys.stdout.flush()
    answer = sys.stdin.readline().strip()
    if not answer:
        return None
    if answer.isdigit() and 0 < int(answer) <= len(sessions):
        return sessions[int(answer) - 1]["id"]
    write_error("scv: there is no such number.")
    raise SystemExit(EXIT_USAGE)
