"""Access in the console: explanations, rules, bundles, projects and tokens."""

from pathlib import Path
from urllib.parse import quote

import pytest

from integration.web.console.console_client import ConsoleClient, open_console
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.json import JsonObject
from toolcrib.store.audit import Filters
from toolcrib.testing.played import PlayedRunner

pytestmark = pytest.mark.anyio

HOSTILE = '<img src=x onerror=alert(1)><b hx-get="/x">'
QUERY = {"tool": "toolcrib/ping", "agent": "reviewer", "source": "api", "mode": "default"}


async def test_access_page_shows_verdict_steps_and_the_smallest_change(console: ConsoleClient) -> None:
    empty = await console.page("/access")
    assert "Choose a tool" in empty.text
    assert "toolcrib/ping" in {option.attributes["value"] for option in empty.one("datalist").all("option")}
    page = await console.page("/access", 200, **QUERY)
    assert page.one("h2", id="verdict").text == "Needs approval"
    assert page.one("tr", class_="decides").all("td")[0].text == "mode"
    twin = await console.json("/access", **QUERY)
    assert (twin["answer"]["verdict"], twin["answer"]["flip"]["word"]) == ("ask", "Allowed")
    change = page.one("form", action="/access/rules")
    fields = {each.attributes["name"]: each.attributes["value"] for each in change.all("input")}
    after = await console.send("/access/rules", fields)
    assert after.one("h2", id="verdict").text == "Allowed"
    (rule,) = console.crib.permissions.list()
    assert after.one("tr", class_="decides").one("a").text == rule.id


async def test_reach_table_shows_access_with_the_reason_of_each_cell(console: ConsoleClient) -> None:
    await console.send("/access/rules", {"effect": "ask", "pattern": "toolcrib/ping", "reason": "Look first."})
    page = await console.page("/access/reach", pattern="toolcrib/pin*")
    assert [each.text for each in page.one("thead").all("th")] == ["Who", "toolcrib/ping"]
    rows = {row.all("th")[0].text: row for row in page.one("tbody").all("tr")}
    assert "asks" in rows["agent reviewer"].one("button").text
    assert "Look first." in rows["agent reviewer"].one("span", class_="reasons").text
    assert "The owner makes this call by hand" in rows["owner (cli)"].one("span", class_="reasons").text
    assert "No tool matches" in (await console.page("/access/reach", pattern="nothing/*")).text
    tool = (await console.page("/tools/toolcrib/ping")).one("dl", class_="users")
    by_access = {dt.text.split()[-1]: dd.text for dt, dd in zip(tool.all("dt"), tool.all("dd"), strict=True)}
    assert "agent reviewer" in by_access["asks"]
    assert "owner (cli)" in by_access["runs"]


async def test_reach_table_links_to_single_tools(console: ConsoleClient) -> None:
    page = await console.page("/access/reach")
    links = {each.text: each.attributes["href"] for each in page.one("thead").all("a")}
    opened = await console.page(links["toolcrib"])
    assert len(opened.one("thead").all("a")) == 11
    (row,) = [each for each in opened.all("tr") if "agent reviewer" in each.text]
    listed = await console.page(row.one("a").attributes["href"])
    (ping,) = [each.text for each in listed.one("tbody").all("tr") if "toolcrib/ping" in each.text]
    assert "asks" in ping
    assert "Mode default asks" in ping


async def test_reach_table_is_paged_and_filtered_by_name(console: ConsoleClient) -> None:
    for number in range(27):
        await console.crib.tokens.create(f"app-{number:02}")
    page = await console.page("/access/reach", who="app-")
    assert len(page.one("tbody").all("tr")) == 25
    after = next(each for each in page.all("a") if each.text == "Next principals")
    second = await console.page(after.attributes["href"])
    assert [row.one("th").text for row in second.one("tbody").all("tr")] == ["token app-25", "token app-26"]
    found = await console.client.get("/api/policy/reach", params={"who": "app-07"})
    assert [each["who"] for each in found.json()] == ["token app-07"]
    assert "No principal" in (await console.page("/access/reach", who="missing")).text


async def test_invalid_pattern_is_an_error(console: ConsoleClient) -> None:
    assert "is not a pattern" in (await console.page("/access/reach", 422, pattern="nothing")).text


async def test_unknown_names_are_reported_with_similar_ones(console: ConsoleClient) -> None:
    page = await console.page("/access", tool="toolcrib/pong")
    assert "Unknown tool" in page.one("h2", id="verdict").text
    assert page.all("a", class_="mono")[0].text == "toolcrib/ping"
    assert "is not a tool" in (await console.page("/access", 422, tool="what")).text
    assert "not found" in (await console.page("/access", 404, tool="toolcrib/ping", agent="missing")).text
    assert "is not valid JSON" in (await console.page("/access", 422, tool="toolcrib/ping", arguments="{")).text


async def test_rule_of_a_file_is_shown_with_its_line_and_cannot_be_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    text = '\n[[rules]]\neffect = "deny"\npattern = "toolcrib/ping"\nreason = "No."\n[[rules]]\neffect = "odd"\n'
    (home / "toolcrib.toml").write_text(text)
    async with open_console(home) as console:
        page = await console.page("/access", 200, **QUERY)
        assert page.one("h2", id="verdict").text == "Hidden"
        assert "toolcrib.toml:2" in page.one("tr", class_="decides").text
        assert not page.one("section", class_="answer").all("button")
        rules = await console.page("/access/rules")
        (row,) = rules.all("li", data_row="")
        assert not row.all("button")
        assert "must be allow, ask or deny" in rules.one("div", class_="failure").text
        id = row.attributes["id"].removeprefix("rule-")
        assert "is defined in" in (await console.send(f"/access/rules/{id}/remove", {}, 409)).text


async def test_rule_is_simulated_added_removed_restored_and_audited(
    console: ConsoleClient,
) -> None:
    crib = console.crib
    await crib.call("toolcrib/ping", {}, principal=crib.owner(source="cli"))
    form = {"effect": "deny", "pattern": "toolcrib/ping", "reason": HOSTILE, "source": "cli", "hours": "8"}
    tried = await console.page("/access/simulate", 200, **form)
    assert "The decision changes for 1 call of 1." in tried.text
    assert tried.one("tbody").one("strong").text in ("deny", "hidden")
    listed = await console.send("/access/rules", form)
    (row,) = listed.all("li", data_row="")
    assert "sources: cli" in row.text
    assert not row.all("img")
    (rule,) = crib.permissions.list()
    assert "No decision changes" in (await console.page("/access/simulate", effect="ask", pattern="github/*")).text
    assert "1 call of" in (await console.page("/access/simulate", remove=rule.id)).text
    removed = await console.send(f"/access/rules/{rule.id}/remove")
    undo = removed.one("form", class_="banner").one("input").attributes["value"]
    await console.send("/access/rules", {"rule": undo})
    (again,) = crib.permissions.list()
    assert (again.effect, again.reason, again.expires_at) == (rule.effect, rule.reason, rule.expires_at)
    records = await crib.audit.find(Filters(server="toolcrib", phase="outcome", door="console"))
    assert [record["tool"] for record in records] == ["rules.add", "rules.remove", "rules.add"]
    assert "must be" in (await console.send("/access/rules", {"effect": "deny", "pattern": "nothing"}, 422)).text


async def test_condition_on_an_argument_is_part_of_the_rule(console: ConsoleClient) -> None:
    form = {"effect": "deny", "pattern": "toolcrib/get_server_info", "pointer": "include_uptime", "test": "equals"}
    await console.send("/access/rules", form | {"value": "true"})
    query = {"tool": "toolcrib/get_server_info", "source": "api"}
    twin = await console.json("/access", **query, arguments='{"include_uptime": true}')
    assert twin["answer"]["verdict"] == "deny"
    assert (await console.json("/access", **query, arguments="{}"))["answer"]["verdict"] == "allow"


async def test_bundles_and_projects_are_created_changed_and_deleted(console: ConsoleClient, tmp_path: Path) -> None:
    fields = {"name": "House tools", "tools": "toolcrib/*\nagent_zoo/*", "description": HOSTILE, "prompt": HOSTILE}
    page = await console.send("/access/bundles", fields)
    assert "House tools" in page.one("li", id="bundle-house-tools").text
    assert "built in" in page.text
    await console.send("/access/bundles/house-tools", fields | {"name": "Home tools"})
    assert "cannot be changed" in (await console.send("/access/bundles/operator", fields, 409)).text
    place = {"path": str(tmp_path), "agent": "reviewer", "bundle": ["house-tools"]}
    projects = await console.send("/access/projects", place)
    (row,) = projects.all("li", data_row="")
    assert "reviewer · 1 bundle" in row.text
    await console.send("/access/bundles/house-tools/remove")
    assert "0 bundles" in (await console.page("/access/projects")).text
    assert "No projects yet" in (await console.send("/access/projects/remove", {"path": str(tmp_path)})).text
    assert "not an absolute path" in (await console.send("/access/projects", {"path": "here"}, 422)).text


async def test_token_secret_is_shown_once_and_is_invalid_after_revocation(console: ConsoleClient) -> None:
    made = await console.send("/access/tokens", {"name": "cursor", "source": "ide", "agent": "reviewer"})
    secret = made.one("code", id="secret").text
    answer = await console.client.get("/mcp/agents/reviewer", headers={"authorization": f"Bearer {secret}"})
    assert answer.status_code != 401
    listed = await console.page("/access/tokens")
    assert secret not in listed.text
    assert "reviewer" in listed.one("li", data_row="").text
    revoked = await console.send("/access/tokens/cursor/revoke")
    assert "revoked" in revoked.one("li", data_row="").text
    after = await console.client.get("/mcp/agents/reviewer", headers={"authorization": f"Bearer {secret}"})
    assert after.status_code == 401
    assert "is not a valid token name" in (await console.send("/access/tokens", {"name": "two words"}, 422)).text
    records = await console.crib.audit.find(Filters(server="toolcrib", phase="outcome", door="console"))
    assert secret not in str(records)


async def test_form_redirects_only_within_the_console(console: ConsoleClient) -> None:
    rule = {"line": "ask toolcrib/ping", "back": "https://elsewhere.example/access?"}
    answer = await console.client.post("/access/rules", data=rule, follow_redirects=False)
    assert answer.headers["location"] == "/access/rules"


async def test_chosen_project_marks_what_applies_in_it(console: ConsoleClient, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for project, bundles in ((here, ["researcher"]), (there, [])):
        project.mkdir()
        await console.send("/access/projects", {"path": str(project), "bundle": bundles})
        where: JsonObject = {"projects": [str(project)]}
        rule: JsonObject = {"effect": "ask", "pattern": f"lab/{project.name}", "where": where}
        await console.crib.permissions.add(rule, by="owner")
    await console.crib.permissions.add({"effect": "ask", "pattern": "lab/all"}, by="owner")
    chosen = str(here)
    rules = (await console.json("/access/rules", cwd=chosen))["rules"]
    marks = {each["pattern"]: each["inProject"] for each in rules}
    assert marks == {"lab/here": True, "lab/there": False, "lab/all": None}
    assert "other project" in (await console.page("/access/rules", cwd=chosen)).text
    bundles = (await console.json("/access/bundles", cwd=chosen))["bundles"]
    assert [each["id"] for each in bundles if each["granted"]] == ["researcher"]
    projects = (await console.json("/access/projects", cwd=chosen))["projects"]
    assert {each["path"]: each["chosen"] for each in projects} == {chosen: True, str(there): False}
    for page in ("/access/rules", "/access/bundles", "/access/projects"):
        assert "this project" not in (await console.page(page)).text


async def test_default_agent_of_a_project_is_set_and_used(console: ConsoleClient, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    await console.send("/access/projects", {"path": str(project), "agent": "reviewer"})
    page = await console.page("/sessions", cwd=str(project))
    assert (
        "project default (reviewer)"
        in page.one("form", method="post", action=f"/sessions?cwd={quote(str(project))}").text
    )
    console.crib.runners.add(PlayedRunner({}))
    made = await console.crib.sessions.create(NewSession("web", str(project), runner="played"))
    assert (await console.crib.sessions.get(made.id)).agent == "reviewer"
    await console.page("/connect", cwd=str(project))
    assert (await console.json("/connect", cwd=str(project)))["defaultAgent"] == "reviewer"
    assert (await console.json("/connect"))["defaultAgent"] is None
