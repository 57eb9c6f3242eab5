"""The label of a server's failure in its status."""

import pytest

from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import ConfigError, ToolcribError, Unavailable
from toolcrib.model.servers import DefinitionSource, ServerEntry, ServerSpec
from toolcrib.servers.server_status import ServerStatus
from toolcrib.upstream.http.failures import refused_by_status
from toolcrib.upstream.http.http_connection import ResponseHead
from toolcrib.upstream.http.responses import RequestRefused
from toolcrib.upstream.status import Report

PLACE = DefinitionSource("toolcrib", "user", "/mcp.json")
SPEC = ServerSpec("web", "stdio", PLACE, alias="web", command="web")
ENTRY = ServerEntry("web", "web", PLACE, {}, SPEC, trusted=True)


def refused_response(status: int) -> ToolcribError:
    return refused_by_status("web", RequestRefused(ResponseHead(status, []), b""))


@pytest.mark.parametrize(
    "failure",
    [
        ConfigError("server.command_not_found", "It is not installed."),
        ConfigError("server.variable_missing", "KEY is not set."),
        ServerFailed("server.ended", "It exited with 1.", 1, ()),
        ServerFailed("server.flood", "It printed text.", None, ()),
        ServerFailed("server.protocol", "It sent HTML.", None, ()),
        refused_response(404),
    ],
    ids=lambda failure: failure.code,
)
def test_failure_that_needs_a_change_is_a_setup_problem(failure: ToolcribError) -> None:
    assert label_of(failure) == "Setup problem"


@pytest.mark.parametrize(
    "failure",
    [
        Unavailable("server.unreachable", "No route."),
        Unavailable("server.timeout", "Late."),
        refused_response(503),
        refused_response(429),
    ],
    ids=str,
)
def test_failure_that_may_resolve_itself_is_unreachable(failure: ToolcribError) -> None:
    assert label_of(failure) == "Can't reach"


def label_of(failure: ToolcribError) -> str:
    report = Report()
    report.failed(failure)
    status = ServerStatus(ENTRY, report.status(SPEC, None))
    assert status.to_json()["lastErrorCode"] == failure.code
    return status.label
