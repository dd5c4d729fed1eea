"""Options of every command, and the small parser that the quick commands use.

Global options may stand before or after the command. Everything behind `--` is text.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from scv.errors import ScvError
from scv.values import frozen

POLICIES = ("on-risk", "always", "never")
RISKS = ("read_only", "filesystem", "process", "delegate", "network")

_GLOBAL_VALUES = {
    "--scv-home": "home",
    "--config": "config_file",
    "--model": "model",
    "--provider": "provider",
    "--base-url": "base_url",
    "--approval-policy": "approval_policy",
}


class UsageError(ScvError):
    """The command line is wrong; exit status 2."""


@frozen
class GlobalOptions:
    """What was said for the whole invocation; None where nothing was."""

    home: str | None = None
    config_file: str | None = None
    model: str | None = None
    provider: str | None = None
    base_url: str | None = None
    approval_policy: str | None = None
    wants_help: bool = False

    def session_config(self) -> dict[str, str]:
        """Return what a session keeps of it, in wire spelling."""
        chosen = {
            "provider": self.provider,
            "model": self.model,
            "baseUrl": self.base_url,
        }
        return {name: value for name, value in chosen.items() if value}


@frozen
class Parsed:
    """A command's own arguments."""

    flags: frozenset[str]
    values: dict[str, list[str]]
    words: tuple[str, ...]

    def value(self, name: str) -> str | None:
        """Return an option's last value, or None."""
        return self.values[name][-1] if name in self.values else None


def split_global_options(
    arguments: Sequence[str],
) -> tuple[GlobalOptions, list[str]]:
    """Take the global options out of a command line.

    Raises:
        UsageError: One lacks its value, or has one that cannot be.
    """
    options = GlobalOptions()
    rest: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if word == "--":
            rest += [word, *reversed(waiting)]
            break
        name, value = _take(word, waiting, _GLOBAL_VALUES)
        if name in _GLOBAL_VALUES:
            chosen: Any = {_GLOBAL_VALUES[name]: value}
            options = replace(options, **chosen)
        elif word in ("--help", "-h"):
            options = replace(options, wants_help=True)
        else:
            rest.append(word)
    policy = options.approval_policy
    if policy is not None and policy not in POLICIES:
        raise UsageError(f"--approval-policy is one of {', '.join(POLICIES)}.")
    return options, rest


def parse(
    arguments: Sequence[str],
    *,
    flags: Collection[str] = (),
    values: Collection[str] = (),
) -> Parsed:
    """Read a command's own options and words.

    Raises:
        UsageError: An unknown option, or one without its value.
    """
    seen: set[str] = set()
    given: dict[str, list[str]] = {}
    words: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        name, value = _take(word, waiting, values)
        if value is not None:
            given.setdefault(name, []).append(value)
        elif word in flags:
            seen.add(word)
        elif word == "--":
            words += reversed(waiting)
            break
        elif word.startswith("-") and word != "-":
            known = ", ".join(sorted([*flags, *values])) or "none of its own"
            raise UsageError(f"unknown option {word}; this command has {known}.")
        else:
            words.append(word)
    return Parsed(frozenset(seen), given, tuple(words))


def parse_risks(lists: Sequence[str]) -> frozenset[str]:
    """Read the values of `--allow`: risks, separated by commas.

    Raises:
        UsageError: One is no risk.
    """
    chosen = {risk.strip() for text in lists for risk in text.split(",")} - {""}
    unknown = sorted(chosen - set(RISKS))
    if unknown:
        raise UsageError(
            f"--allow takes {', '.join(RISKS)}; {unknown[0]} is none of them."
        )
    return frozenset(chosen)


def _take(
    word: str, waiting: list[str], takes_value: Collection[str]
) -> tuple[str, str | None]:
    """Read `--name=value` or `--name value`; no value when it is something else."""
    name, equals, value = word.partition("=")
    if name not in takes_value:
        return word, None
    if equals:
        return name, value
    if not waiting:
        raise UsageError(f"{name} needs a value.")
    return name, waiting.pop()
