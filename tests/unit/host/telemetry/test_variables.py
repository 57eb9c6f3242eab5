"""The standard variables of OpenTelemetry, as the crib reads them."""

import pytest

from toolcrib.host.telemetry.otlp.variables import Sampler, read_variables

NEW, LOW = bytes(16), bytes(8) + bytes([255] * 8)


def test_without_variables_all_signals_go_to_the_local_collector() -> None:
    variables = read_variables({})
    urls = {signal: endpoint.url for signal, endpoint in variables.endpoints.items()}
    assert urls == {signal: f"http://localhost:4318/v1/{signal}" for signal in ("traces", "metrics", "logs")}
    assert variables.resource["service.name"] == "toolcrib"
    assert not variables.problems


def test_variable_of_one_signal_overrides_the_common_one() -> None:
    found = read_variables(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://traces:1/own",
            "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic%20abc, x-team = a",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_METRIC_EXPORT_INTERVAL": "2000",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_SERVICE_NAME": "crib",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,team=a",
        }
    )
    traces, metrics = found.endpoints["traces"], found.endpoints["metrics"]
    assert (traces.url, metrics.url) == ("http://traces:1/own", "http://collector:4318/v1/metrics")
    assert (traces.timeout, metrics.timeout, metrics.delay) == (0.5, 10, 2)
    assert traces.headers == {"authorization": "Basic abc", "x-team": "a"}
    assert traces.gzip
    assert "logs" not in found.endpoints
    assert found.resource["service.name"] == "crib"
    assert found.resource["team"] == "a"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_RESOURCE_ATTRIBUTES", "alone"),
    ],
)
def test_invalid_value_is_a_problem_that_names_its_variable(name: str, value: str) -> None:
    found = read_variables({name: value})
    assert found.problems
    assert all(name in problem for problem in found.problems)
    assert found.sampler == Sampler()


def test_disabled_sdk_sends_nothing() -> None:
    assert not read_variables({"OTEL_SDK_DISABLED": "true"}).endpoints


@pytest.mark.parametrize(
    ("name", "argument", "new", "low", "sampled_by_caller"),
    [
        ("parentbased_always_on", "", True, True, True),
        ("always_off", "", False, False, False),
        ("parentbased_always_off", "", False, False, True),
        ("traceidratio", "0.5", True, False, False),
        ("parentbased_traceidratio", "0.5", True, False, True),
    ],
)
def test_sampler_decides_as_its_name_states(
    name: str, argument: str, new: bool, low: bool, sampled_by_caller: bool
) -> None:
    sampler = read_variables({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument}).sampler
    assert sampler.samples(NEW, None) is new
    assert sampler.samples(LOW, None) is low
    assert sampler.samples(LOW, True) is sampled_by_caller
