"""Names that suggest a secret.

A heuristic that makes such reads visible; it is no confidentiality boundary.
Letter case is ignored and every component of a path is looked at.
"""

import re

_WHOLE_NAMES = (
    r"\.env",
    r"\.envrc",
    r"\.ssh",
    r"\.gnupg",
    r"\.aws",
    r"\.kube",
    r"\.netrc",
    r"_netrc",
    r"\.pgpass",
    r"\.npmrc",
    r"\.pypirc",
    r"\.htpasswd",
    r"\.dockercfg",
    r"\.vault-token",
    r"id_(?:rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk)",
    r"secrets?\.(?:json|ya?ml|toml|ini|txt)",
)
_ENDINGS = ("pem", "key", "p12", "pfx", "jks", "keystore", "kdbx", "ppk")

SECRET_NAME = (
    r"(?i:(?:\A|/)(?:"
    + "|".join(_WHOLE_NAMES)
    + r"|\.env\.[^/]*"
    + r"|[^/]*(?:credential|private[_-]?key)[^/]*"
    + r"|[^/]*\.(?:"
    + "|".join(_ENDINGS)
    + r"))(?:/|\Z))"
)
"""The rule as a regular expression over a whole relative path, for `search`."""

_SECRET = re.compile(SECRET_NAME)

RIPGREP_GLOBS = (
    *(
        name.replace("\\", "")
        for name in _WHOLE_NAMES
        if "(" not in name and "?" not in name
    ),
    "id_{rsa,dsa,ecdsa,ecdsa_sk,ed25519,ed25519_sk}",
    "{secret,secrets}.{json,yml,yaml,toml,ini,txt}",
    ".env.*",
    "*credential*",
    "*{private_key,private-key,privatekey}*",
    *(f"*.{ending}" for ending in _ENDINGS),
)
"""The same rule as globs for one component, letter case ignored."""


def looks_secret(path: str) -> bool:
    """Tell whether any component of a relative path is named like a secret."""
    return _SECRET.search(path) is not None
