"""Two more tools that the conformance suite calls, whether they are listed or not.

The SDK's server has neither. It answers with a result that says so, which the suite takes for a pass; who answers an
unknown tool with an error, as the specification asks, fails. Here they exist and do what the suite wants to look at.
"""

from mcp.server.mcpserver import Context
from mcp.types import InputRequiredResult

from upstreams.everything.server import _name_elicitation, mcp  # pyright: ignore[reportPrivateUsage] one file of others


@mcp.tool()
async def test_logging_tool(ctx: Context) -> str:
    """Log something, which nobody hears who did not ask for a level."""
    await ctx.info("Nobody asked for this")  # pyright: ignore[reportDeprecated]
    return "logged"


@mcp.tool()
async def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
    """Ask for a name, as a result and never as a request of its own."""
    await ctx.report_progress(progress=1, total=2, message="About to ask")
    if ctx.input_responses:
        return "answered"
    return InputRequiredResult(input_requests={"user_name": _name_elicitation()})
