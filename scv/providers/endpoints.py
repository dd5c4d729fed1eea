"""Opens models by profile and owns what they need: connections, practice server."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Self

import anyio

from scv.errors import ConfigError
from scv.providers.address import find_address
from scv.providers.credential import Redactor, check_headers, find_key
from scv.providers.endpoint import Endpoint
from scv.providers.failure import Failures
from scv.providers.responses import ResponsesModel

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from scv.config.settings import Profile, ProviderLimits
    from scv.providers.practice.server import PracticeServer

Connect = Callable[[], Awaitable[Endpoint]]

PRACTICE_MODEL = "practice"


class ModelEndpoints:
    """Everything between models and the network, for one process.

    Leaving the block closes every connection and ends the practice server.

    Args:
        version: Goes into the User-Agent header.
    """

    def __init__(self, version: str = "0") -> None:
        self._version = version
        self._endpoints: dict[object, Endpoint] = {}
        self._practice: PracticeServer | None = None
        self._practice_lock = anyio.Lock()
        self._tasks: TaskGroup | None = None
        self._wires: dict[str, Callable[..., tuple[str | None, Connect]]] = {
            "responses": self._open_responses,
            "practice": self._open_practice,
        }

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._tasks is not None
        with anyio.CancelScope(shield=True):
            for endpoint in self._endpoints.values():
                await endpoint.aclose()
        self._endpoints.clear()
        self._tasks.cancel_scope.cancel()
        # The block's own exception goes on as it is, not wrapped in a group.
        await self._tasks.__aexit__(None, None, None)

    def open_model(
        self,
        profile_name: str,
        profile: "Profile",
        *,
        limits: "ProviderLimits",
        model_name: str | None,
        environment: Mapping[str, str],
        retry_base_seconds: float = 1.0,
    ) -> ResponsesModel:
        """Open one model of a profile; nothing is sent or loaded yet.

        Args:
            profile_name: Names the settings in messages.
            profile: Where the endpoint is and how to sign in.
            limits: Caps on a response and the number of retries.
            model_name: Overrides the profile's model.
            environment: Variables for the key and for proxies.
            retry_base_seconds: First wait of the back-off.

        Raises:
            ConfigError: No key, no model, or an address that cannot be used.
        """
        known, connect = self._wires[profile.wire_api](
            profile_name, profile, environment
        )
        name = (model_name or profile.model or known or "").strip()
        if not name:
            raise ConfigError(
                "no model is named.",
                key=f"providers.{profile_name}.model",
                remedy="Set it to one of this endpoint's, or use --provider practice.",
            )
        return ResponsesModel(
            wire=profile.wire_api,
            name=name,
            limits=limits,
            timeout_seconds=profile.timeout_seconds,
            connect=connect,
            retry_base_seconds=retry_base_seconds,
        )

    def _open_responses(
        self, profile_name: str, profile: "Profile", environment: Mapping[str, str]
    ) -> tuple[str | None, Connect]:
        key = find_key(profile_name, profile, environment)
        extra = check_headers(profile_name, profile.headers)
        address = find_address(
            profile.base_url,
            "/responses",
            key=f"providers.{profile_name}.base_url",
            environment=environment,
        )
        secrets = [key, *(v for v in extra.values() if len(v) >= 8)]
        if address.proxy_auth is not None:
            secrets.append(address.proxy_auth[1])
        endpoint = self._endpoint(
            (address, key, *sorted(extra.items())),
            lambda: Endpoint(
                address,
                {
                    "user-agent": f"scv/{self._version}",
                    "authorization": f"Bearer {key}",
                    **extra,
                },
                Failures(
                    address.host,
                    redact=Redactor(secrets),
                    key_hint=f"api_key or {profile.api_key_env}"
                    f" of profile {profile_name}",
                ),
            ),
        )

        async def connect() -> Endpoint:
            return endpoint

        return None, connect

    def _open_practice(
        self, profile_name: str, profile: "Profile", environment: Mapping[str, str]
    ) -> tuple[str | None, Connect]:
        return PRACTICE_MODEL, self._connect_practice

    async def _connect_practice(self) -> Endpoint:
        """Start the practice server on first use."""
        async with self._practice_lock:
            server = self._practice
            if server is None:
                from scv.providers.practice.server import PracticeServer

                if self._tasks is None:
                    raise RuntimeError("models work only inside `async with`")
                server = PracticeServer()
                await self._tasks.start(server.serve)
                self._practice = server
        address = find_address(
            server.base_url, "/responses", key="practice", environment={}
        )
        return self._endpoint(
            PRACTICE_MODEL,
            lambda: Endpoint(
                address,
                {"authorization": f"Bearer {server.token}"},
                Failures(
                    PRACTICE_MODEL,
                    redact=Redactor([server.token]),
                    key_hint="that no other program uses this port",
                ),
            ),
        )

    def _endpoint(self, key: object, build: Callable[[], Endpoint]) -> Endpoint:
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            endpoint = self._endpoints[key] = build()
        return endpoint
