"""docs/telemetry.md: its commands work, and its tables and dashboard match the exports."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from docs.pages import PAGES, commands, follow, page, reader
from toolcrib.gate.counters import MOST_SERIES, CallCounters
from toolcrib.host.telemetry.otlp.spans import MOST_SPANS
from toolcrib.host.telemetry.otlp.variables import read_variables
from toolcrib.host.telemetry.prometheus import CribState, render
from toolcrib.model.tools import ToolRef

DASHBOARD = PAGES / "telemetry" / "dashboard.json"


@contextmanager
def collector() -> Generator[tuple[str, "Queue[tuple[str, bytes]]"]]:
    """Yield the address of an OTLP receiver, and the requests it receives."""
    received: Queue[tuple[str, bytes]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


def exported() -> dict[str, set[str]]:
    """Return the labels of each exported metric, under its name in the page."""
    counters = CallCounters()
    counters.refused["policy.denied"] += 1
    counters.calls[ToolRef("notes", "search"), "ok"].add(0.1)
    some = {"one": 1}
    body, _ = render(counters, CribState(some, some, some))
    return {
        re.sub(r"_(bucket|count|sum)$", "", sample.name): set(sample.labels) - {"le"}
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if sample.name.startswith("toolcrib")
    }


def test_commands_of_the_page_send_a_span_to_the_collector(tmp_path: Path) -> None:
    text = page("telemetry")
    variables = dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"].endswith(":4318")
    start, *others = commands(text)
    assert start == "toolcrib serve"
    with collector() as (url, received):
        person = reader(tmp_path, **{**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "50"})
        with person.serving():
            follow(person, others)
            while (path_and_body := received.get(timeout=20))[0] != "/v1/traces":
                pass
    spans = ExportTraceServiceRequest.FromString(path_and_body[1]).resource_spans[0].scope_spans[0].spans
    assert [span.name for span in spans] == ["tools/call ping"]


def test_table_of_metrics_matches_the_exported_metrics() -> None:
    rows = re.findall(r"^\| `(toolcrib_\w+)` \| ([^|]*)\|", page("telemetry"), re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == exported()


def test_dashboard_uses_exported_metrics_and_labels_only() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    known = exported()
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name.removesuffix("_bucket") for query in queries for name in re.findall(r"toolcrib_\w+", query)}
    assert used == known.keys()
    for query in queries:
        labels = set[str]().union(*(known[name.removesuffix("_bucket")] for name in re.findall(r"toolcrib_\w+", query)))
        grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
        filtered = set(re.findall(r"(\w+)=~?\"", query))
        assert (grouped | filtered) - {"le", "instance"} <= labels, query
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_variables_of_the_page_change_the_settings() -> None:
    named = set(re.findall(r"`(OTEL_\w+)`", page("telemetry")))
    for name in named:
        changed = {"OTEL_TRACES_SAMPLER": "traceidratio"} if name.endswith("SAMPLER_ARG") else {}
        value = "gzip" if name.endswith("COMPRESSION") else "k=0.25" if "HEADERS" in name else "0.25"
        value = {"OTEL_SDK_DISABLED": "true", "OTEL_RESOURCE_ATTRIBUTES": "k=v"}.get(name, value)
        with_it, without = read_variables({**changed, name: value}), read_variables(changed)
        assert with_it != without, name


def test_limits_of_the_page_match_the_program() -> None:
    text = page("telemetry")
    assert f"beyond {MOST_SERIES:,} series" in text
    assert f"At most {MOST_SPANS:,} spans wait" in text
