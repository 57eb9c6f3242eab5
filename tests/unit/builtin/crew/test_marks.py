"""Names and marks of the crew tools, and the descriptions that a model needs."""

from collections.abc import Callable
from typing import Any

import pytest

from toolcrib.builtin.crew.server import CONDITIONS, SERVER, crew_server
from toolcrib.model.tools import Tool
from toolcrib.tools import PythonSource, ToolServer, tool
from toolcrib.tools.define import ToolDefinition

NAMES = {
    "send_message", "list_agents", "save_memory", "recall_memory", "delete_memory", "library_write", "library_read",
    "library_list", "library_delete", "extend_timeout", "list_projects", "current_project", "check_credits",
    "grant_credits", "credit_config", "create_work_task", "check_work_status", "list_work_tasks", "manage_schedule",
    "notify_owner", "ask_owner", "configure_notifications", "code_symbols", "find_references", "github_star_repo",
    "github_unstar_repo", "github_fork_repo", "github_list_prs", "github_create_pr", "github_review_pr",
    "github_create_issue", "github_list_issues", "github_repo_info", "github_get_pr_diff", "github_comment_on_pr",
    "github_follow_user",
}  # fmt: skip
PRIVILEGED = {"crib_grant_credits", "crib_credit_config"}
SCHEDULER_BLOCKED = {
    "crib_send_message", "crib_grant_credits", "crib_credit_config", "crib_github_fork_repo", "crib_github_create_pr",
    "crib_github_create_issue", "crib_github_comment_on_pr", "crib_ask_owner",
}  # fmt: skip
DEFINITIONS = crew_server({}).definitions


def names_with(has: Callable[[ToolDefinition], bool]) -> set[str]:
    return {name for name, definition in DEFINITIONS.items() if has(definition)}


def test_crew_has_exactly_the_documented_tools() -> None:
    assert set(DEFINITIONS) == {f"crib_{name}" for name in NAMES}
    assert SERVER == "crew"


def test_two_tools_are_privileged() -> None:
    assert names_with(lambda definition: definition.marks.privileged) == PRIVILEGED


def test_eight_tools_are_blocked_for_schedules() -> None:
    assert names_with(lambda definition: definition.marks.scheduler_blocked) == SCHEDULER_BLOCKED


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_description_states_use_and_result_and_all_parameters(name: str) -> None:
    definition = DEFINITIONS[name]
    assert definition.title
    assert "Use it " in definition.description
    assert "Returns " in definition.description
    assert definition.output_schema is not None
    for parameter, schema in definition.input_schema["properties"].items():
        assert schema.get("description"), parameter


def test_each_required_service_has_a_description() -> None:
    required = {service for definition in DEFINITIONS.values() for service in definition.requires}
    assert required <= set(CONDITIONS)


def test_tool_with_a_missing_service_is_not_offered_and_names_it() -> None:
    @tool(requires=["sails", "wind"])
    async def cross() -> None:
        """Cross the sea."""

    server = ToolServer("ship", tools=[cross], conditions={"sails": "sails: buy some"})
    source = PythonSource(server, services={"wind"})
    assert source.tools() == ()
    assert source.lacks("cross") == "It needs sails: buy some."
    assert source.lacks("anchor") is None
    offered: list[Tool] = [*PythonSource(server, services={"wind", "sails"}).tools()]
    assert [each.ref.tool for each in offered] == ["cross"]


def test_missing_service_without_a_description_is_named() -> None:
    async def cross() -> None:
        """Cross the sea."""

    described: Any = tool(requires="sails")(cross)
    assert PythonSource(ToolServer("ship", tools=[described])).lacks("cross") == "It needs `sails`."
