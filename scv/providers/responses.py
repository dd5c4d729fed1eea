"""The Responses wire as a model: one request, its stream, and its retries."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

from scv.core.ports import ModelEvent, ModelRequest, RetryScheduled
from scv.errors import ProviderError
from scv.providers.failure import BODY_BYTES, MAX_WAIT_SECONDS
from scv.providers.reader import ResponseReader
from scv.providers.request import encode_request

if TYPE_CHECKING:
    from scv.config.settings import ProviderLimits
    from scv.providers.endpoint import Answer, Endpoint

logger = logging.getLogger(__name__)


class ResponsesModel:
    """One model behind the Responses API; the port `scv.core.ports.Model`.

    Args:
        wire: What history remembers as the origin of native items.
        name: The model's name as the endpoint knows it.
        limits: Caps on one response, and how often to try again.
        timeout_seconds: Longest whole request, stream included.
        connect: Gives the endpoint, and starts what it needs first.
        retry_base_seconds: First wait of the back-off before its random factor.
    """

    def __init__(
        self,
        *,
        wire: str,
        name: str,
        limits: "ProviderLimits",
        timeout_seconds: float,
        connect: Callable[[], Awaitable["Endpoint"]],
        retry_base_seconds: float = 1.0,
    ) -> None:
        self._wire = wire
        self._name = name
        self._limits = limits
        self._timeout_seconds = timeout_seconds
        self._connect = connect
        self._retry_base_seconds = retry_base_seconds

    @property
    def wire(self) -> str:
        """Name of the API in history entries."""
        return self._wire

    @property
    def name(self) -> str:
        """The model's name as the endpoint knows it."""
        return self._name

    async def warm(self) -> None:
        """Load the HTTP library and start what the endpoint needs, ahead of use."""
        await (await self._connect()).warm()

    async def respond(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one response; failures before anything was shown are tried again.

        The connection is released before the final event is given out.

        Raises:
            ProviderError: The response failed for good. Its message says how many
                attempts were made, or that part of the answer had been shown.
        """
        endpoint = await self._connect()
        body = encode_request(request, wire=self._wire, model=self._name)
        attempt = 0
        while True:
            attempt += 1
            reader = ResponseReader(
                wire=self._wire,
                model=self._name,
                limits=self._limits,
                failures=endpoint.failures,
            )
            try:
                async with endpoint.post(
                    body, timeout_seconds=self._timeout_seconds
                ) as answer:
                    await _check_status(answer, endpoint)
                    while not reader.is_over:
                        chunk = await answer.read()
                        if not chunk:
                            break
                        for event in reader.feed(chunk):
                            yield event
                    for event in reader.finish():
                        yield event
                    await answer.finish()
            except ProviderError as error:
                delay = self._delay(error, attempt, has_started=reader.has_started)
                if delay is None:
                    raise
                logger.info("attempt %d failed: %s", attempt, error.message)
                yield RetryScheduled(attempt, delay, error.message)
                await anyio.sleep(delay)
                continue
            assert reader.done is not None
            yield reader.done
            return

    def _delay(
        self, error: ProviderError, attempt: int, *, has_started: bool
    ) -> float | None:
        """Return how long to wait before another attempt, None when there is none."""
        if has_started:
            if error.retryable:
                _add(error, "part of the answer had come, so it was not tried again")
            return None
        if not error.retryable or attempt > self._limits.max_retries:
            if attempt > 1:
                _add(error, f"{attempt} attempts")
            return None
        if error.retry_after_seconds is not None:
            delay = error.retry_after_seconds
            if delay > MAX_WAIT_SECONDS:
                _add(
                    error,
                    f"it asks to wait {delay:.0f} seconds,"
                    f" SCV waits at most {MAX_WAIT_SECONDS:.0f};"
                    f" attempts made: {attempt}",
                )
                return None
            return delay
        from random import uniform

        delay = self._retry_base_seconds * 2.0 ** (attempt - 1) * uniform(0.5, 1.5)
        return min(delay, MAX_WAIT_SECONDS)


async def _check_status(answer: "Answer", endpoint: "Endpoint") -> None:
    """Raise for anything but a 200 that can be a stream."""
    headers = answer.headers
    if answer.status != 200:
        raise endpoint.failures.status(
            answer.status,
            await answer.head(BODY_BYTES),
            retry_after=headers.get("retry-after"),
            request_id=headers.get("x-request-id"),
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        raise endpoint.failures.malformed(
            "answered 200 with an HTML page instead of an event stream; check base_url"
        )


def _add(error: ProviderError, note: str) -> None:
    error.message = f"{error.message} ({note})"
    error.args = (error.message,)
