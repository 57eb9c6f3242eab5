"""Sends traces, metrics and logs to their OTLP/HTTP endpoints in the background.

A failed export is repeated a few times, then dropped. A collector that is down costs the crib one log line, not one per
export, and never delays a call.
"""

import gzip
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
import httpx2
from anyio.abc import TaskGroup

from toolcrib.base.network.web import Web
from toolcrib.base.settings import Environment
from toolcrib.gate.counters import CallCounters
from toolcrib.host.telemetry.otlp.logs import LOGGER, LogRequests
from toolcrib.host.telemetry.otlp.messages import resource_of
from toolcrib.host.telemetry.otlp.metrics import MetricRequests
from toolcrib.host.telemetry.otlp.spans import CallSpans, Redact
from toolcrib.host.telemetry.otlp.variables import Endpoint, Signal, read_variables
from toolcrib.host.telemetry.otlp.wire import trace_request
from toolcrib.model.errors import ToolcribError

_PAUSES: Final = (1.0, 2.0, 4.0)
"""Seconds before each repetition of a failed export."""
_REPEATABLE: Final = frozenset({429, 502, 503, 504})
_LAST_SECONDS: Final = 5.0
"""Seconds for the last export of a crib that stops."""

logger = logging.getLogger(__name__)


class Otlp:
    """OpenTelemetry of one crib. `observer` is the gate's."""

    def __init__(
        self,
        environment: Environment,
        counters: CallCounters,
        *,
        redact: Redact | None,
        masking: logging.Filter,
    ) -> None:
        """`redact` masks the contents of calls; None if no contents are sent. `masking` masks log records."""
        variables = read_variables(environment)
        for problem in variables.problems:
            logger.warning("%s", problem)
        self._endpoints = variables.endpoints
        resource = resource_of(variables.resource)
        self._resource = resource
        self._batch = anyio.Event()
        self.observer = CallSpans(counters, variables.sampler, redact=redact, on_batch=lambda: self._batch.set())
        self._logs = LogRequests(resource)
        self._logs.addFilter(masking)
        self._requests: Mapping[Signal, Callable[[], bytes | None]] = {
            "traces": self._take_spans,
            "metrics": MetricRequests(self.observer, resource).take,
            "logs": self._logs.take,
        }
        self._failing: set[Signal] = set()

    @property
    def secrets(self) -> list[str]:
        """Header values, which are usually credentials."""
        return [value for endpoint in self._endpoints.values() for value in endpoint.headers.values()]

    @asynccontextmanager
    async def sending(self, tasks: TaskGroup, web: Web) -> AsyncGenerator[None]:
        """Send in the background, and once more at the end."""
        async with web.client(local_allowed=True) as client:
            logging.getLogger(LOGGER).addHandler(self._logs)
            try:
                for signal, endpoint in self._endpoints.items():
                    tasks.start_soon(self._follow, client, signal, endpoint)
                yield
            finally:
                logging.getLogger(LOGGER).removeHandler(self._logs)
                with anyio.move_on_after(_LAST_SECONDS, shield=True):
                    for signal, endpoint in self._endpoints.items():
                        await self._export(client, signal, endpoint, ())

    async def _follow(self, client: httpx2.AsyncClient, signal: Signal, endpoint: Endpoint) -> None:
        while True:
            with anyio.move_on_after(endpoint.delay):
                if signal == "traces":
                    await self._batch.wait()
                else:
                    await anyio.sleep_forever()
            if signal == "traces":
                self._batch = anyio.Event()
            await self._export(client, signal, endpoint, _PAUSES)

    def _take_spans(self) -> bytes | None:
        spans = self.observer.take()
        if self.observer.dropped:
            logger.warning("Dropped %d spans: the collector is slower than the calls.", self.observer.dropped)
            self.observer.dropped = 0
        return trace_request(spans, self._resource) if spans else None

    async def _export(
        self, client: httpx2.AsyncClient, signal: Signal, endpoint: Endpoint, pauses: tuple[float, ...]
    ) -> None:
        body = self._requests[signal]()
        if body is None:
            return
        headers = {**endpoint.headers, "content-type": "application/x-protobuf"}
        if endpoint.gzip:
            body, headers["content-encoding"] = gzip.compress(body, 1), "gzip"
        for pause in (*pauses, None):
            failure, may_repeat = await _post(client, endpoint, headers, body)
            if failure is None or not may_repeat or pause is None:
                self._note(signal, endpoint, failure)
                return
            await anyio.sleep(pause)

    def _note(self, signal: Signal, endpoint: Endpoint, failure: str | None) -> None:
        """Log the first failure of a series, and the end of the series."""
        if failure is not None and signal not in self._failing:
            self._failing.add(signal)
            logger.warning("Could not send %s to %s: %s", signal, endpoint.url, failure)
        elif failure is None and signal in self._failing:
            self._failing.discard(signal)
            logger.warning("Sending %s to %s works again.", signal, endpoint.url)


async def _post(
    client: httpx2.AsyncClient, endpoint: Endpoint, headers: Mapping[str, str], body: bytes
) -> tuple[str | None, bool]:
    """Send a request. Returns the failure, if any, and whether to repeat the request."""
    try:
        with anyio.fail_after(endpoint.timeout):
            response = await client.post(endpoint.url, content=body, headers=dict(headers))
    except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
        return str(error) or type(error).__name__, True
    except ToolcribError as error:
        return error.message, False
    if response.is_success:
        return None, False
    return f"HTTP status {response.status_code}", response.status_code in _REPEATABLE
