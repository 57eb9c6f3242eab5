"""Tool names across nodes: one name per tool and one tool per name, whichever node stores it first."""

import anyio
import pytest

from integration.store.databases import Server
from toolcrib.gate.catalog.naming import NameTable
from toolcrib.host.names import keep_names
from toolcrib.model.tools import ToolRef
from toolcrib.store.engine import open_store
from toolcrib.store.names import load_names

pytestmark = pytest.mark.anyio

FIRST = [ToolRef("a", "b_c"), ToolRef("time", "now")]
SECOND = [ToolRef("a_b", "c"), ToolRef("time", "now"), ToolRef("x", "y")]


async def test_nodes_that_name_tools_at_once_agree_on_every_name(postgres_url: str) -> None:
    one, two = NameTable(), NameTable()
    async with open_store(postgres_url) as store, open_store(postgres_url) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_names, store, one, one.extend(FIRST))
            tasks.start_soon(keep_names, other, two, two.extend(SECOND))
        stored = NameTable(await load_names(store))
    for table, refs in ((one, FIRST), (two, SECOND)):
        for form in ("endpoint", "claude", "bridge"):
            assert [table.name(form, ref) for ref in refs] == [stored.name(form, ref) for ref in refs]
    assert len(stored.refs["endpoint"]) == 4


async def test_names_reserved_by_another_node_leave_no_error_in_the_database_log(
    postgres: Server, postgres_url: str
) -> None:
    before = len(postgres.log.read_bytes())
    async with open_store(postgres_url) as store, open_store(postgres_url) as other:
        tables = [(store, NameTable()), (other, NameTable())]
        for number in range(5):
            refs = [ToolRef("a", f"tool_{number}"), ToolRef("b", f"tool_{number}")]
            async with anyio.create_task_group() as tasks:
                for each, table in tables:
                    tasks.start_soon(keep_names, each, table, table.extend(refs))
        assert len(await load_names(store)) == 30
    assert b"ERROR" not in postgres.log.read_bytes()[before:]
