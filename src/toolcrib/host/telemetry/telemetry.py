"""Builds the telemetry of a crib: counters always, OpenTelemetry if the owner switched it on."""

import importlib
import importlib.util
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from toolcrib.base.masking.logs import MaskingFilter
from toolcrib.base.masking.values import KnownSecrets, Redactor
from toolcrib.base.network.web import Web
from toolcrib.base.settings import Environment, Settings
from toolcrib.gate.counters import CallCounters
from toolcrib.model.errors import ConfigError
from toolcrib.model.observing import CallObserver

if TYPE_CHECKING:
    from toolcrib.host.telemetry.otlp.exporter import Otlp


class Telemetry:
    """The counters of a crib, and its OpenTelemetry if that is on."""

    def __init__(self, settings: Settings, environment: Environment, redactor: Redactor, secrets: KnownSecrets) -> None:
        self.counters = CallCounters()
        self._otlp = _otlp(settings, environment, self.counters, redactor, secrets) if settings.otel else None

    @property
    def observer(self) -> CallObserver:
        """The observer of the gate."""
        return self.counters if self._otlp is None else self._otlp.observer

    async def open(self, stack: AsyncExitStack, tasks: TaskGroup, web: Web) -> None:
        """Start sending, if OpenTelemetry is on."""
        if self._otlp is not None:
            await stack.enter_async_context(self._otlp.sending(tasks, web))


def _otlp(
    settings: Settings, environment: Environment, counters: CallCounters, redactor: Redactor, secrets: KnownSecrets
) -> "Otlp":
    if importlib.util.find_spec("opentelemetry.proto") is None:
        message = "The setting `otel` is on, but the extra `otel` is not installed."
        raise ConfigError("settings.invalid", message, "Run `pip install 'toolcrib[otel]'`, or set `otel` to false.")
    otlp: Otlp = importlib.import_module("toolcrib.host.telemetry.otlp.exporter").Otlp(
        environment,
        counters,
        redact=redactor.shown if settings.otel_content else None,
        masking=MaskingFilter(secrets),
    )
    secrets.add(*otlp.secrets)
    return otlp
