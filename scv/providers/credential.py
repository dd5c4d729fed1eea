"""Keys and secret headers: read, checked, and kept out of every message."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from scv.errors import ConfigError

if TYPE_CHECKING:
    from scv.config.settings import Profile

MARK = "[redacted]"
_WINDOW = 6
"""Longest piece of a key that may appear by chance: shorter echoes carry nothing."""

# Compiled at their first use, which most processes never reach.
_TOKEN = r"[^\s\"'<>(){},;=:]+"
_MASKED = r"\w(?:\*{2,}|•{2,}|(?:\.{3,}|…)\w)"
_KEY_SHAPE = r"(?i)(?:sk|rk|pk|gsk|xai|key)-\w"
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_BAD_VALUE = r"[^\t\x20-\x7e]"
_TRANSPORT_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")
)


def find_key(
    profile_name: str, profile: "Profile", environment: Mapping[str, str]
) -> str:
    """Return the profile's key: `api_key`, else the variable it names.

    Raises:
        ConfigError: There is none (blank counts as none), or it cannot be a key.
    """
    setting = f"providers.{profile_name}.api_key"
    key = (profile.api_key or "").strip()
    if not key:
        setting = f"{setting}_env"
        key = environment.get(profile.api_key_env, "").strip()
    if not key:
        raise ConfigError(
            f"the profile has no key: api_key is not set and the variable"
            f" {profile.api_key_env} is empty.",
            key=setting,
            remedy=f"Set {profile.api_key_env}, or api_key in the user's config file.",
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            "the key holds a line end, a blank or another character no key has.",
            key=setting,
            remedy="Copy the key again, as one line.",
        )
    return key


def check_headers(profile_name: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Return extra request headers by lower-case name, trimmed and safe to send.

    Raises:
        ConfigError: A name or value that HTTP cannot carry, or a header of the
            connection itself.
    """
    checked: dict[str, str] = {}
    for name, value in headers.items():
        setting = f"providers.{profile_name}.headers"
        if not re.fullmatch(_HEADER_NAME, name):
            raise ConfigError("a header name has characters none has.", key=setting)
        if name.lower() in _TRANSPORT_HEADERS:
            raise ConfigError(f"the header {name} belongs to SCV.", key=setting)
        value = value.strip()
        if re.search(_BAD_VALUE, value):
            raise ConfigError(
                f"the value of {name} holds a line end or another character"
                " no header has.",
                key=setting,
            )
        checked[name.lower()] = value
    return checked


class Redactor:
    """Takes secrets, and what looks like a piece of one, out of foreign text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted({s for s in secrets if s}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return `text` with every trace of a secret replaced by a mark."""
        for secret in self._secrets:
            text = text.replace(secret, MARK)
        return re.sub(_TOKEN, self._token, text)

    def _token(self, match: re.Match[str]) -> str:
        token = match.group()
        if MARK in token:
            return token
        if re.match(_KEY_SHAPE, token) or re.search(_MASKED, token):
            return MARK
        for secret in self._secrets:
            for start in range(len(token) - _WINDOW + 1):
                if token[start : start + _WINDOW] in secret:
                    return MARK
        return token
