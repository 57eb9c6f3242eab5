"""The standard `OTEL_*` variables that the crib honours, from the environment that its settings were read from.

Values that are invalid or not supported are reported as problems and replaced by their default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args
from urllib.parse import unquote

from toolcrib.model.version import __version__

Signal = Literal["traces", "metrics", "logs"]
SIGNALS: Final[tuple[Signal, ...]] = get_args(Signal)

_EXPORTER: Final = "OTEL_EXPORTER_OTLP"
_LOCAL: Final = "http://localhost:4318"
_DELAYS: Final[Mapping[Signal, tuple[str, float]]] = {
    "traces": ("OTEL_BSP_SCHEDULE_DELAY", 5_000),
    "metrics": ("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
    "logs": ("OTEL_BLRP_SCHEDULE_DELAY", 1_000),
}
_RANGE: Final = 1 << 64


class Sampler(NamedTuple):
    """Decides which traces are sent: a share of new ones, and with `follows_parent` those the caller sampled."""

    share: float = 1.0
    follows_parent: bool = True

    def samples(self, trace_id: bytes, parent: bool | None) -> bool:
        """Return whether to send a trace. `parent` is whether its caller sampled it; None for a new trace."""
        if parent is not None and self.follows_parent:
            return parent
        return self.share >= 1 or int.from_bytes(trace_id[8:]) < self.share * _RANGE


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how often a signal is sent."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    timeout: float
    """In seconds."""
    gzip: bool
    delay: float
    """Seconds between two exports."""


@dataclass(frozen=True, slots=True)
class OtlpVariables:
    """All variables as read. A signal without an endpoint is not sent."""

    endpoints: Mapping[Signal, Endpoint]
    resource: Mapping[str, str]
    sampler: Sampler
    problems: tuple[str, ...]


def read_variables(environment: Mapping[str, str]) -> OtlpVariables:
    """Read the variables. Empty ones count as unset, as the specification demands."""
    reading = _Reading({name: value for name, value in environment.items() if value})
    endpoints: dict[Signal, Endpoint] = {}
    for signal in SIGNALS:
        if (endpoint := reading.endpoint(signal)) is not None:
            endpoints[signal] = endpoint
    resource = {"service.name": "toolcrib", "service.version": __version__, **reading.pairs("OTEL_RESOURCE_ATTRIBUTES")}
    if name := environment.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = name
    return OtlpVariables(endpoints, resource, reading.sampler(), tuple(reading.problems))


class _Reading:
    """Reads variables and collects their problems."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.problems: list[str] = []

    def endpoint(self, signal: Signal) -> Endpoint | None:
        """Return the endpoint of a signal, or None if it is switched off."""
        exporter = f"OTEL_{signal.upper()}_EXPORTER"
        if self._variables.get("OTEL_SDK_DISABLED", "").lower() == "true" or not self._is_on(exporter):
            return None
        self._choice(*self._variable_of(signal, "PROTOCOL"), ("http/protobuf",))
        own = self._variables.get(f"{_EXPORTER}_{signal.upper()}_ENDPOINT")
        base = self._variables.get(f"{_EXPORTER}_ENDPOINT", _LOCAL)
        variable, milliseconds = _DELAYS[signal]
        return Endpoint(
            url=own or f"{base.rstrip('/')}/v1/{signal}",
            headers={
                name.lower(): value for name, value in self.pairs(self._variable_of(signal, "HEADERS")[0]).items()
            },
            timeout=self._number(self._variable_of(signal, "TIMEOUT")[0], 10_000) / 1000,
            gzip=self._choice(*self._variable_of(signal, "COMPRESSION"), ("none", "gzip")) == "gzip",
            delay=self._number(variable, milliseconds) / 1000,
        )

    def sampler(self) -> Sampler:
        """Return the sampler of `OTEL_TRACES_SAMPLER` and its argument."""
        variable = "OTEL_TRACES_SAMPLER"
        choices = ("parentbased_always_on", "always_on", "always_off", "traceidratio")
        choices += ("parentbased_always_off", "parentbased_traceidratio")
        name = self._choice(variable, self._variables.get(variable, choices[0]), choices)
        follows_parent, kind = name.startswith("parentbased_"), name.removeprefix("parentbased_")
        if kind == "traceidratio":
            return Sampler(self._number(f"{variable}_ARG", 1.0, highest=1.0), follows_parent)
        return Sampler(1.0 if kind == "always_on" else 0.0, follows_parent)

    def pairs(self, variable: str) -> dict[str, str]:
        """Return the pairs of a list such as `key=value,key=value`, percent-decoded."""
        return dict(self._pairs(variable))

    def _pairs(self, variable: str) -> Iterator[tuple[str, str]]:
        for item in filter(None, map(str.strip, self._variables.get(variable, "").split(","))):
            name, mark, value = item.partition("=")
            if mark and name.strip():
                yield unquote(name.strip()), unquote(value.strip())
            else:
                self.problems.append(f"{variable} must be a list of `key=value`.")

    def _variable_of(self, signal: Signal, setting: str) -> tuple[str, str]:
        """Return the name and value of the variable for this signal, or else of the one for all signals."""
        own, common = f"{_EXPORTER}_{signal.upper()}_{setting}", f"{_EXPORTER}_{setting}"
        name = own if own in self._variables else common
        return name, self._variables.get(name, "")

    def _is_on(self, variable: str) -> bool:
        return self._choice(variable, self._variables.get(variable, ""), ("otlp", "none")) == "otlp"

    def _choice(self, variable: str, value: str, choices: tuple[str, ...]) -> str:
        if value and value.lower() not in choices:
            self.problems.append(f"{variable} is {value!r}; supported: {', '.join(choices)}. Using {choices[0]}.")
        return value.lower() if value.lower() in choices else choices[0]

    def _number(self, variable: str, default: float, *, highest: float = 86_400_000) -> float:
        value = self._variables.get(variable)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if 0 <= number <= highest:
            return number
        self.problems.append(f"{variable} is {value!r}; it must be a number from 0 to {highest:g}. Using {default:g}.")
        return default
