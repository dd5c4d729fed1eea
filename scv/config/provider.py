"""Choose the provider profile of a session."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from scv.config.settings import Profile, Settings
from scv.errors import ConfigError
from scv.values import frozen

PRACTICE = "practice"
DEFAULT_PORTS = {"http": 80, "https": 443}


@frozen
class ChosenProfile:
    """A profile with its name; `profile.model` is set, except for practice."""

    name: str
    profile: Profile


def choose_profile(
    settings: Settings,
    *,
    name: str | None,
    overrides: Mapping[str, str],
    asked: Mapping[str, str] = MappingProxyType({}),
) -> ChosenProfile:
    """Pick a profile by name, else the configured one; `practice` always exists.

    Args:
        overrides: What command line and environment say; they may name any address.
        asked: What a front end asks for its session. Its address must be at the
            profile's own origin, because the profile's key is sent there.

    Raises:
        ConfigError: None is configured, there is no such profile, it names no
            model, or a front end asks for another origin.
    """
    name = name or settings.provider.active
    if name is None:
        raise ConfigError(
            "no model is configured.",
            key="provider.active",
            remedy=_first_steps("openai"),
        )
    profile = settings.providers.get(name)
    if profile is None:
        if name != PRACTICE:
            known = ", ".join([*sorted(settings.providers), PRACTICE])
            raise ConfigError(
                f"there is no provider profile {name!r}; known: {known}.",
                key="provider.active",
                remedy=_first_steps(name),
            )
        profile = Profile(wire_api="practice", model=PRACTICE)
    if name != PRACTICE:
        changes: dict[str, Any] = dict(overrides)
        profile = replace(profile, **changes)
        if "base_url" in asked:
            _check_origin(name, profile, asked["base_url"])
        changes = dict(asked)
        profile = replace(profile, **changes)
    if profile.model is None:
        raise ConfigError(
            "names no model.",
            key=f"providers.{name}.model",
            remedy="Set it in the configuration, or pass --model NAME.",
        )
    return ChosenProfile(name, profile)


def _check_origin(name: str, profile: Profile, base_url: str) -> None:
    own = _origin(profile.base_url)
    if own is None or _origin(base_url) != own:
        raise ConfigError(
            "a session may not send this profile's key to another scheme, host or"
            " port than the profile names.",
            key=f"providers.{name}.base_url",
            remedy="Write a profile of its own for that address in config.toml and"
            " choose it as the provider, or start SCV with --base-url.",
        )


def _origin(url: str) -> tuple[str, str, int] | None:
    """Take scheme, host and port out of an address; None when it is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


def _first_steps(name: str) -> str:
    return (
        "Write these lines to config.toml in the SCV home (~/.scv), mode 0600:\n"
        f'  provider.active = "{name}"\n'
        f'  providers.{name}.model = "NAME-OF-THE-MODEL"\n'
        f'  providers.{name}.api_key_env = "OPENAI_API_KEY"\n'
        "or try SCV without a model: --provider practice"
    )
