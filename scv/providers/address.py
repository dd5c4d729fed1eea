"""Where an endpoint is, and whether a proxy stands before it.

Rule for proxies: an endpoint on loopback is always reached directly. Any other
honours `HTTPS_PROXY`/`HTTP_PROXY` (by the endpoint's scheme), then `ALL_PROXY`,
unless `NO_PROXY` names its host; lower-case names count and come first. HTTP
and HTTPS proxies work; a SOCKS proxy is a configuration error that says so.
"""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from scv.errors import ConfigError
from scv.values import frozen


@frozen
class Address:
    """A checked endpoint: where requests go, and through which proxy."""

    url: str
    host: str
    secure: bool
    proxy: str | None = None
    proxy_auth: tuple[str, str] | None = None


def find_address(
    base_url: str, path: str, *, key: str, environment: Mapping[str, str]
) -> Address:
    """Join base URL and path, and choose the proxy.

    A base URL may end in a slash, or in `path` itself when somebody copied the
    whole address; a query stays at the end.

    Raises:
        ConfigError: Not an http(s) URL, or a proxy that cannot be used; `key`
            names the setting.
    """
    parts = _split(base_url, key)
    host = parts.hostname or ""
    kept = parts.path.rstrip("/").removesuffix(path)
    url = urlunsplit((parts.scheme, parts.netloc, kept + path, parts.query, ""))
    secure = parts.scheme == "https"
    proxy = None if is_loopback(host) else _proxy(parts, environment)
    if proxy is None:
        return Address(url, parts.netloc, secure)
    name, value = proxy
    via = _split_proxy(name, value)
    plain = urlunsplit((via.scheme, via.netloc.rpartition("@")[2], "", "", ""))
    auth = None
    if via.username is not None:
        auth = (unquote(via.username), unquote(via.password or ""))
    return Address(url, parts.netloc, secure, plain, auth)


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address literal means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    if not (host.startswith("127.") or ":" in host):
        return False
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _split(base_url: str, key: str) -> SplitResult:
    problem = "is not an address of the form https://host/path."
    if not base_url.isprintable() or " " in base_url or not base_url.isascii():
        raise ConfigError(problem, key=key)
    try:
        parts = urlsplit(base_url)
        port_is_good = parts.port != 0
    except ValueError:
        raise ConfigError(problem, key=key) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good:
        raise ConfigError(problem, key=key)
    if parts.username is not None:
        raise ConfigError(
            "holds a user name; keys do not belong into addresses.",
            key=key,
            remedy="Use api_key, api_key_env or headers.",
        )
    return parts


def _proxy(
    parts: SplitResult, environment: Mapping[str, str]
) -> tuple[str, str] | None:
    if _is_excluded(parts, _variable("no_proxy", environment)[1]):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        found, value = _variable(name, environment)
        if value:
            return found, value
    return None


def _variable(name: str, environment: Mapping[str, str]) -> tuple[str, str]:
    for spelling in (name, name.upper()):
        value = environment.get(spelling, "").strip()
        if value:
            return spelling, value
    return name, ""


def _is_excluded(parts: SplitResult, excluded: str) -> bool:
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for entry in excluded.lower().split(","):
        entry = entry.strip()
        if entry == "*":
            return True
        name, colon, entry_port = entry.rpartition(":")
        if colon and entry_port.isdigit() and ":" not in name:
            if int(entry_port) != port:
                continue
            entry = name
        entry = entry.removeprefix("*").removeprefix(".").strip("[]")
        if entry and (host == entry or host.endswith(f".{entry}")):
            return True
        if "/" in entry and _is_in_network(host, entry):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False


def _split_proxy(name: str, value: str) -> SplitResult:
    remedy = "Set an http:// proxy, or name the endpoint's host in NO_PROXY."
    kind: Literal["socks", "bad"] = "bad"
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
        kind = "socks" if parts.scheme.startswith("socks") else "bad"
    except ValueError:
        pass
    what = "names a SOCKS proxy, which SCV cannot use." if kind == "socks" else ""
    raise ConfigError(
        what or "does not hold a proxy's address.", key=name, remedy=remedy
    )
