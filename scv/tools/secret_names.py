"""Names that suggest a secret.

A heuristic that makes such reads visible; it is no confidentiality boundary.
Letter case is ignored and every component of a path is looked at.
"""

import re
from collections.abc import Iterable

_NAMES = (
    ".env",
    ".envrc",
    ".ssh",
    ".gnupg",
    ".aws",
    ".kube",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".htpasswd",
    ".dockercfg",
    ".vault-token",
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"),
    *(
        f"{stem}.{ending}"
        for stem in ("secret", "secrets")
        for ending in ("json", "yml", "yaml", "toml", "ini", "txt")
    ),
)
_PARTS = ("credential", "private_key", "private-key", "privatekey")
_ENDINGS = (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk")


def _any_of(texts: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, texts))})"


SECRET_NAME = (
    rf"(?i:(?:\A|/)(?:{_any_of(_NAMES)}|\.env\.[^/]*"
    rf"|[^/]*{_any_of(_PARTS)}[^/]*|[^/]*{_any_of(_ENDINGS)})(?:/|\Z))"
)
"""The rule as a regular expression over a whole relative path."""

RIPGREP_GLOBS = (
    *_NAMES,
    ".env.*",
    *(f"*{part}*" for part in _PARTS),
    *(f"*{ending}" for ending in _ENDINGS),
)
"""The same rule as globs for one component, letter case ignored."""

_SECRET = re.compile(SECRET_NAME)
_SECRET_BYTES = re.compile(SECRET_NAME.encode())
_HINTS = tuple(text.encode() for text in (*_NAMES, *_PARTS, *_ENDINGS))


def secret_like(paths: bytes) -> list[bytes]:
    """Pick the secret-like ones out of many paths, each ended by a NUL."""
    lowered = paths.lower()
    if not any(hint in lowered for hint in _HINTS):  # one look at all of them
        return []
    return [path for path in paths.split(b"\0") if _SECRET_BYTES.search(path)]


def looks_secret(path: str) -> bool:
    """Tell whether any component of a relative path is named like a secret."""
    return _SECRET.search(path) is not None
