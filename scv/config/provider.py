"""Choose the provider profile of a session."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scv.config.settings import Profile, Settings
from scv.errors import ConfigError

PRACTICE = "practice"


@dataclass(frozen=True, slots=True)
class ChosenProfile:
    """A profile with its name; `profile.model` is set, except for practice."""

    name: str
    profile: Profile


def choose_profile(
    settings: Settings, *, name: str | None, overrides: Mapping[str, str]
) -> ChosenProfile:
    """Pick a profile by name, else the configured one; `practice` always exists.

    Raises:
        ConfigError: None is configured, there is no such profile, or it names
            no model.
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
    if profile.model is None:
        raise ConfigError(
            "names no model.",
            key=f"providers.{name}.model",
            remedy="Set it in the configuration, or pass --model NAME.",
        )
    return ChosenProfile(name, profile)


def _first_steps(name: str) -> str:
    return (
        "Write these lines to config.toml in the SCV home (~/.scv), mode 0600:\n"
        f'  provider.active = "{name}"\n'
        f'  providers.{name}.model = "NAME-OF-THE-MODEL"\n'
        f'  providers.{name}.api_key_env = "OPENAI_API_KEY"\n'
        "or try SCV without a model: --provider practice"
    )
