"""From global options to what `scv.app` is given."""

import os
from typing import TYPE_CHECKING

from scv.cli.arguments import GlobalOptions
from scv.config.paths import Home, find_home

if TYPE_CHECKING:
    from scv.app import Options


def home_of(options: GlobalOptions) -> Home:
    """Find the instance of this invocation."""
    return find_home(os.environ, options.home)


def serving_options(options: GlobalOptions) -> "Options":
    """Build the options of a server that gives its choices to every session."""
    from dataclasses import replace

    return replace(
        embedded_options(options),
        provider=options.provider,
        model=options.model,
        base_url=options.base_url,
    )


def embedded_options(options: GlobalOptions) -> "Options":
    """Build the options of a server inside a front end.

    Provider and model are not among them: the front end names them for its
    session, which keeps them when it is continued. An address is: only a command
    line may send a profile's key to another one.
    """
    from scv.app import Options

    flags = {}
    if options.approval_policy:
        flags["tools"] = {"approval_policy": options.approval_policy}
    return Options(
        home_of(options),
        dict(os.environ),
        config_file=options.config_file,
        flags=flags,
        base_url=options.base_url,
    )
