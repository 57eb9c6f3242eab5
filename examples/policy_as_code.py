"""Policy as code: rules from a reviewed file, rules added by a program, and a simulation of their effect."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from toolcrib import Crib, Denied, Settings, ToolServer, tool
from toolcrib.host.replay import Trial, replay

RULES = """
[[rules]]
effect = "deny"
pattern = "shop/refund"
conditions = [{ pointer = "/amount", test = "range", value = { min = 200 } }]
reason = "Refunds of 200 € and more are made by accounting."
"""


@tool
async def refund(order: str, amount: float) -> str:
    """Refund an order."""
    return f"{order}: {amount:.2f} € are on their way."


async def main() -> None:
    """Run a small refund and deny a large one, then explain and simulate stricter rules."""
    with TemporaryDirectory() as home:
        await anyio.Path(home, "toolcrib.toml").write_text(RULES, encoding="utf-8")
        async with Crib(Settings(home=Path(home))) as crib:
            crib.register(ToolServer("shop", tools=[refund]))
            owner = crib.owner(source="cli")
            small = {"order": "K-1", "amount": 20.0}
            print((await crib.call("shop/refund", small, principal=owner)).content[0]["text"])
            try:
                await crib.call("shop/refund", {"order": "K-2", "amount": 500.0}, principal=owner)
            except Denied as denied:
                print(denied.message)

            await crib.permissions.add({"effect": "ask", "pattern": "shop/*", "reason": "New shop."}, by="deployment")
            explained = await crib.why("shop/refund", principal=crib.owner(source="ide"), arguments=small)
            print(explained.verdict, "because:", explained.decided_by.reason)

            # What would this rule have changed for the calls so far?
            tried = await replay(crib, Trial(add=["deny shop/refund"]))
            for each in tried.differences:
                print(f"record {each.record}: {each.before} would have been {each.after}")


if __name__ == "__main__":
    asyncio.run(main())
