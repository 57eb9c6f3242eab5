"""Drives a crib with the FastMCP client: `fastmcp_driver.py URL TOKEN ERA`; run by `.tools/fastmcp`.

Prints what the client received as one JSON object. FastMCP is imported by name, because it is not installed where this
file is type-checked.

"""

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

Seen = dict[str, Any]


async def elicited(message: str, response_type: Any, params: Any, context: Any) -> Any:
    """Accept a form; decline to open an address."""
    result = import_module("fastmcp.client.elicitation").ElicitResult
    if getattr(params, "mode", "form") == "url":
        return result(action="decline")
    schema: Seen = getattr(params, "requested_schema", None) or {}
    fields: Seen = schema.get("properties", {})
    values = {"name": "Ada", "confirm": True, "user_name": "Ada"}
    return result(action="accept", content={key: values[key] for key in fields})


async def sampled(messages: Any, params: Any, context: Any) -> str:
    """Answer for a model."""
    return "yes"


async def use_core(client: Any) -> Seen:
    """Use tools, prompts, resources, completions, questions and progress."""
    progress: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    types = import_module("mcp_types")
    counted = await client.call_tool("lab_count_to", {"end": 3}, progress_handler=on_progress)
    prompt = types.PromptReference(type="ref/prompt", name="far_greet")
    return {
        "tools": [tool.name for tool in await client.list_tools()],
        "prompts": [prompt.name for prompt in await client.list_prompts()],
        "resources": [str(each.uri) for each in await client.list_resources()],
        "completion": (await client.complete(prompt, {"name": "who", "value": "A"})).values,
        "counted": [counted.content[0].text, progress],
        "echo": (await client.call_tool("lab_echo", {"text": "hello"})).structured_content,
        "error": (await client.call_tool("lab_fail", {"message": "no"}, raise_on_error=False)).is_error,
        **{
            what: (await client.call_tool("far_ask", {"what": what})).structured_content["answer"]
            for what in ("form", "url", "sampling", "roots")
        },
    }


async def use_extensions(client: Any) -> Seen:
    """Use skills and tasks."""
    tasks = import_module("fastmcp_tasks")
    skills = {skill.uri: skill for skill in await client.list_skills()}
    uri = "skill://billing/refunds/SKILL.md"
    seen: Seen = {
        "skills": {str(key): skill.frontmatter.name for key, skill in skills.items()},
        "skill": [file.digest for file in (await client.get_skill(uri)).resources],
        "file": (await client.read_resource(uri))[0].text,
        # Waits for the task, and answers its questions.
        "waited": (await client.call_tool("jobs_slow_compute", {"seconds": 1, "label": "it"})).content[0].text,
        "asked": (await client.call_tool("jobs_confirm_delete", {})).content[0].text,
    }
    task = await tasks.call_tool_task(client, "slow_slow", {"seconds": 1.5})
    seen["task"] = [(await task.status()).status, (await task.result()).content[0].text]
    cancelled = await tasks.call_tool_task(client, "slow_slow", {"seconds": 60})
    await cancelled.cancel()
    seen["cancelled"] = (await cancelled.wait()).status
    return seen


async def main(url: str, token: str, era: str) -> None:
    """Connect, use every feature, and print the results."""
    client_type = import_module("fastmcp").Client
    transports = import_module("fastmcp.client.transports")
    extensions: list[Any] = []
    if era != "legacy":
        import_module("fastmcp_tasks")
        extensions.append(import_module("fastmcp.skills").SkillsClientExtension())
    client = client_type(
        transports.StreamableHttpTransport(url, headers={"Authorization": f"Bearer {token}"}),
        mode=era,
        roots=["file:///work"],
        sampling_handler=sampled,
        elicitation_handler=elicited,
        extensions=extensions,
        timeout=60,
    )
    async with client:
        seen = await use_core(client)
        if era != "legacy":
            seen |= await use_extensions(client)
    sys.stdout.write(json.dumps(seen, default=lambda value: value.model_dump(mode="json")))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
