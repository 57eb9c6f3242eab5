"""The client that the conformance suite runs: uses a crib over REST, with one server per scenario.

The suite starts this script with the address of its server as the last argument. The running crib speaks the protocol.
This script signs in where the crib requires it, lists the tools and calls each of them once.

"""

import asyncio
import json
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
CRIB, TOKEN = os.environ["CONFORMANCE_CRIB"], os.environ["CONFORMANCE_TOKEN"]
ASKING = ("elicitation-sep1034-client-defaults", "sep-2322-client-request-state")
"""Scenarios whose server asks its client, so that an MCP client must make the calls through the crib."""
SIGN_INS = 4
"""The most sign-ins for one call."""


def note(line: str) -> None:
    """Write a line that the suite keeps with its results."""
    sys.stderr.write(f"{line}\n")


def ask(method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send a request to the crib. Returns the status and the JSON answer."""
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{CRIB}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=25) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def sign_in(name: str) -> bool:
    """Follow the address of a sign-in to its end. Returns whether it succeeded."""
    status, begun = ask("POST", f"/api/servers/{name}/auth", {"again": True})
    if status != 200:
        note(f"sign-in refused: {begun}")
        return False
    try:
        urllib.request.urlopen(begun["url"], timeout=10).close()
    except urllib.error.HTTPError as error:
        note(f"browser ended with {error.code} at {error.url}")
    _, ended = ask("GET", f"/api/servers/{name}/auth?wait=10")
    note(f"sign-in {ended}")
    return ended["state"] == "done"


def connect(name: str) -> dict[str, Any]:
    """Connect to the server, signing in as often as it requires, within the limit."""
    server: dict[str, Any] = {}
    for _ in range(SIGN_INS):
        _, server = ask("POST", f"/api/servers/{name}/test")
        note(f"{server.get('state')}: {server.get('sentence')}")
        if server.get("state") != "needs_auth" or not sign_in(name):
            break
    return server


def call(name: str, tool: dict[str, Any]) -> None:
    """Call one tool, signing in again if the server requires more rights."""
    path = f"/api/tools/{name}/{urllib.parse.quote(tool['name'], safe='')}/call"
    for _ in range(SIGN_INS):
        status, answer = ask("POST", path, {"arguments": arguments_for(tool["inputSchema"])})
        note(f"{tool['name']}: {status} {json.dumps(answer)[:400]}")
        if not (answer.get("isError") and "Authentication required" in json.dumps(answer)) or not sign_in(name):
            return


def arguments_for(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that the schema accepts."""
    samples: dict[str, Any] = {"string": "test", "number": 5, "integer": 5, "boolean": True, "array": [], "object": {}}
    properties: dict[str, dict[str, Any]] = schema.get("properties") or {}
    return {
        name: each.get("default", (each.get("enum") or [samples.get(str(each.get("type")), "test")])[0])
        for name, each in properties.items()
    }


async def call_as_client(name: str) -> None:
    """Call every tool as an MCP client that can be asked, at the crib's address for the server."""
    import httpx2  # imported late, because only the scenarios of ASKING need the SDK
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import ElicitRequestFormParams, ElicitResult

    async def accept_defaults(context: object, params: Any) -> ElicitResult:
        """Answer a server's question with the defaults of its form."""
        assert isinstance(params, ElicitRequestFormParams)
        properties: dict[str, dict[str, Any]] = dict(params.requested_schema.get("properties") or {})
        return ElicitResult(
            action="accept", content={key: each.get("default", True) for key, each in properties.items()}
        )

    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=headers, timeout=20, trust_env=False) as http:
        wire = streamable_http_client(f"{CRIB}/mcp/servers/{name}", http_client=http)
        async with Client(wire, elicitation_callback=accept_defaults) as client:
            for tool in (await client.list_tools()).tools:
                result = await client.call_tool(tool.name, arguments_for(tool.input_schema))
                note(f"{tool.name}: {result.content}")


def planned_calls(tools: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the calls that a scenario prescribes, or else one call per tool with sample arguments."""
    prescribed = CONTEXT.get("toolCalls")
    if prescribed:
        return [(each["name"], each["arguments"]) for each in prescribed]
    by_name = {tool["name"]: tool for tool in tools}
    if "json_schema_echo" in by_name:  # requires the schema of the other tool
        return [("json_schema_echo", {"schema": by_name["json_schema_2020_12_tool"]["inputSchema"]})]
    return [(tool["name"], None) for tool in tools]


def main() -> int:
    """Run one scenario. Returns 0 if the server could be used."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{SCENARIO}-{os.getpid()}")
    definition: dict[str, Any] = {"name": name, "type": "http", "url": sys.argv[-1]}
    definition |= {"share": "session"} if SCENARIO in ASKING else {}
    if "client_id" in CONTEXT:
        definition["auth"] = {
            "type": "oauth", "clientId": CONTEXT["client_id"], "clientSecret": CONTEXT.get("client_secret"),
        }  # fmt: skip
    status, added = ask("POST", "/api/servers", definition)
    assert status == 201, added
    try:
        if connect(name).get("state") != "connected":
            return 1
        if SCENARIO in ASKING:
            asyncio.run(call_as_client(name))
            return 0
        _, tools = ask("GET", f"/api/tools?server={name}")
        by_name = {tool["name"]: tool for tool in tools}
        for tool, arguments in planned_calls(tools):
            known = by_name.get(tool)
            if known is None:
                note(f"{tool} is not offered")
            elif arguments is None:
                call(name, known)
            else:
                note(str(ask("POST", f"/api/tools/{name}/{tool}/call", {"arguments": arguments})))
    finally:
        ask("DELETE", f"/api/servers/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
