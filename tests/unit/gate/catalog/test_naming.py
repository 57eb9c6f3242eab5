"""The tool names that models see: safe, short, unique and stable."""

import json
import os
import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.catalog.naming import TOOL_FORMS, Form, NameTable, plain_name
from toolcrib.model.tools import ToolRef

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")
ALPHABET = st.sampled_from("ab_-A.é/ ")
PARTS = st.text(ALPHABET, min_size=1, max_size=6) | st.text(min_size=1, max_size=90)
REFS = st.builds(ToolRef, PARTS, PARTS)
REF_LISTS = st.lists(REFS, max_size=12)


def table_of(*groups: list[ToolRef]) -> NameTable:
    """Return a table to which the tools were added in this order."""
    table = NameTable()
    for group in groups:
        table.extend(group)
    return table


@given(REF_LISTS)
def test_each_name_is_safe_short_and_unique(refs: list[ToolRef]) -> None:
    table = table_of(refs)
    for form in TOOL_FORMS:
        names = [table.name(form, ref) for ref in set(refs)]
        assert all(SAFE.fullmatch(name) for name in names)
        assert len(set(names)) == len(names)
        assert {table.refs[form][name] for name in names} == set(refs)


@given(REF_LISTS, st.randoms())
def test_names_do_not_depend_on_the_order_of_the_tools(refs: list[ToolRef], random: Random) -> None:
    shuffled = list(refs)
    random.shuffle(shuffled)
    assert table_of(refs).names == table_of(shuffled).names


@given(REF_LISTS, REF_LISTS)
def test_tool_keeps_its_name_when_others_are_added(first: list[ToolRef], later: list[ToolRef]) -> None:
    before, after = table_of(first), table_of(first, later)
    for form in TOOL_FORMS:
        assert before.names[form].items() <= after.names[form].items()


@given(REF_LISTS, REF_LISTS)
def test_stored_rows_restore_the_same_table(first: list[ToolRef], later: list[ToolRef]) -> None:
    table = NameTable()
    restored = NameTable([*table.extend(first), *table.extend(later)])
    assert (restored.names, restored.refs) == (table.names, table.refs)


@given(REF_LISTS, st.randoms())
def test_partially_stored_rows_are_kept_and_completed(refs: list[ToolRef], random: Random) -> None:
    whole = NameTable().extend(refs)
    stored = [row for row in whole if random.random() < 0.5]
    table = NameTable(stored)
    added = table.extend(refs)
    assert not set(added) & set(stored)
    for form in TOOL_FORMS:
        assert table.names[form].keys() == set(refs)
        assert all(table.name(form, ToolRef(row.server, row.tool)) == row.name for row in stored if row.form == form)


@pytest.mark.parametrize(
    ("form", "name"),
    [("claude", "mcp__weather__forecast"), ("endpoint", "weather_forecast"), ("bridge", "mcp_weather_forecast")],
)
def test_tool_without_conflict_has_the_plain_name_of_each_form(form: Form, name: str) -> None:
    assert table_of([ToolRef("weather", "forecast")]).name(form, ToolRef("weather", "forecast")) == name


def test_endpoint_does_not_repeat_the_prefix_of_a_tool_name() -> None:
    assert plain_name("endpoint", ToolRef("agent_zoo", "agent_zoo_inject")) == "agent_zoo_inject"


def test_second_tool_with_the_same_plain_name_gets_a_hash() -> None:
    first, second = ToolRef("a", "b_c"), ToolRef("a_b", "c")
    assert table_of([second], [first]).name("endpoint", second) == "a_b_c"
    assert re.fullmatch(r"a_b_c_[0-9a-f]{6}", table_of([second], [first]).name("endpoint", first))
    assert table_of([first, second]).name("endpoint", first) == "a_b_c"


def test_tool_named_like_the_hash_of_another_does_not_take_its_name() -> None:
    first, second = ToolRef("a", "b_c"), ToolRef("a_b", "c")
    hashed = table_of([first, second]).name("endpoint", second)
    squatter = ToolRef("a", hashed.removeprefix("a_"))
    table = table_of([squatter], [first, second])
    assert len({table.name("endpoint", ref) for ref in (squatter, first, second)}) == 3


def test_long_name_is_cut_and_gets_a_hash() -> None:
    name = table_of([ToolRef("server", "x" * 200)]).name("claude", ToolRef("server", "x" * 200))
    assert len(name) == 64
    assert re.search(r"_[0-9a-f]{6}$", name)


@pytest.mark.skipif("TOOLCRIB_CORPUS" not in os.environ, reason="TOOLCRIB_CORPUS names no corpus")
def test_pairs_of_the_collision_corpus_have_different_names() -> None:
    vectors = Path(os.environ["TOOLCRIB_CORPUS"], "own-vectors", "name-collision-pairs.json")
    pairs: list[tuple[str, str]] = json.loads(vectors.read_text(encoding="utf-8"))
    for one, other in pairs:
        refs = [ToolRef("server", one), ToolRef("server", other)]
        table = table_of(refs)
        for form in TOOL_FORMS:
            assert len({table.name(form, ref) for ref in refs}) == len(set(refs)), (one, other)
