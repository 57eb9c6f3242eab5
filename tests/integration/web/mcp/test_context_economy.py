"""Search and token costs over REST, with a real crib."""

import pytest

from lab import Lab

pytestmark = pytest.mark.anyio


async def test_rest_search_ranks_matches_with_scores(lab: Lab) -> None:
    async with lab.http() as http:
        found = (await http.get("/api/tools", params={"q": "please say something again", "limit": 2})).json()
        assert found[0]["ref"] == "lab/echo"
        assert 0 < found[0]["score"] <= 1
        assert len(found) <= 2
        of_server = (await http.get("/api/tools", params={"q": "session", "server": "toolcrib"})).json()
        assert {tool["server"] for tool in of_server} == {"toolcrib"}


async def test_rest_costs_show_estimated_tokens_beside_calls(lab: Lab) -> None:
    async with lab.http() as http:
        before = (await http.get("/api/tools/cost")).json()
        await http.post("/api/tools/lab/echo/call", json={"arguments": {"text": "a"}})
        after = (await http.get("/api/tools/cost")).json()
    assert before["estimate"] is True
    assert before["tokens"] == sum(each["tokens"] for each in before["tools"])
    calls = [{each["ref"]: each["calls"] for each in report["tools"]}["lab/echo"] for report in (before, after)]
    assert calls == [0, 1]
    (server,) = [each for each in after["servers"] if each["server"] == "lab"]
    assert server["used"] == 1
