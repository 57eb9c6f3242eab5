"""Repeated text in descriptions is shortened without loss, and the schemas accept the same arguments."""

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.shortening import shorten
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.tools import Tool, ToolRef

NOTE = "All times are in UTC and follow ISO 8601, such as 2026-11-18."
OWNER = "The account owner of the repository. The name is not case sensitive."


def make_tool(name: str, description: str, **arguments: str) -> Tool:
    properties = {key: {"type": "string", "description": text} for key, text in arguments.items()}
    return Tool(ToolRef("s", name), description, {"type": "object", "properties": properties})


def shorten_tools(*tools: Tool, chosen: set[str] | None = None) -> list[Tool]:
    forms = shorten(tools, {tool.ref for tool in tools if chosen is None or tool.ref.tool in chosen})
    return [forms.get(tool.ref, tool) for tool in tools]


def argument(tool: Tool, name: str) -> Json:
    return tool.input_schema["properties"][name].get("description")


def test_sentence_of_an_earlier_tool_becomes_a_reference() -> None:
    first, second = shorten_tools(
        make_tool("a", f"Read a day. {NOTE}"), make_tool("b", f"Write a day. {NOTE} Fails at night.")
    )
    assert first.description == f"Read a day. {NOTE}"
    assert second.description == "Write a day. Fails at night.\n\nSee also `a`."


def test_first_sentences_code_and_short_texts_are_kept() -> None:
    code = f"Read.\n\n```\n{NOTE}\n```"
    tools = [
        make_tool("a", NOTE),
        make_tool("b", NOTE),
        make_tool("c", code),
        make_tool("d", "Go. Be quick."),
        make_tool("e", "See. Be quick."),
    ]
    assert shorten_tools(*tools) == tools


def test_description_that_repeats_the_name_or_the_tool_is_removed() -> None:
    (tool,) = shorten_tools(
        make_tool("a", "Find issues by label.", userId="The user ID.", label="Find issues by label.")
    )
    assert (argument(tool, "userId"), argument(tool, "label")) == (None, None)


def test_repeated_description_of_an_argument_becomes_a_reference() -> None:
    tools = [
        make_tool("a", "Open.", owner=OWNER, path="In the repo."),
        make_tool("b", "Close.", owner=OWNER, path="In the repo."),
    ]
    first, second = shorten_tools(*tools)
    assert argument(first, "owner") == OWNER
    assert (argument(second, "owner"), argument(second, "path")) == ("See also `a`.", "In the repo.")


def test_only_chosen_tools_change() -> None:
    tools = [make_tool(name, f"Use {name}. {NOTE}") for name in "abc"]
    assert [tool.description.count(NOTE) for tool in shorten_tools(*tools, chosen={"c"})] == [1, 1, 0]


TEXTS = st.one_of(
    st.lists(
        st.sampled_from(
            [NOTE, OWNER, "Read it.", "See also `a`.", "the user id", "\n\n", "\n", "  ", "```", "\x0b", "\r\n"]
        ),
        max_size=6,
    ).map(" ".join),
    st.text(max_size=60),
)
LEAVES: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer"])},
    optional={"description": TEXTS, "maximum": st.integers(0, 9), "enum": st.just(["a", "description", 1])},
)
NAMES = st.sampled_from(["description", "properties", "items", "user_id", "q"])


def nested_schemas(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    described: dict[str, st.SearchStrategy[Json]] = {"description": TEXTS}
    nested: dict[str, st.SearchStrategy[Json]] = {
        "type": st.just("object"),
        "properties": st.dictionaries(NAMES, inner, max_size=3),
    }
    items: dict[str, st.SearchStrategy[Json]] = {"type": st.just("array"), "items": inner}
    required: dict[str, st.SearchStrategy[Json]] = {"required": st.just(["q"])}
    return st.one_of(
        st.fixed_dictionaries(nested, optional=described | required), st.fixed_dictionaries(items, optional=described)
    )


SCHEMAS = st.recursive(LEAVES, nested_schemas, max_leaves=6)
OBJECTS: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, SCHEMAS, max_size=3)}
)
TOOLS = st.lists(
    st.builds(Tool, st.sampled_from(["a", "b", "c d", "e`", "f"]).map(lambda name: ToolRef("s", name)), TEXTS, OBJECTS),
    unique_by=lambda tool: tool.ref,
    max_size=4,
)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.one_of(st.integers(0, 9), st.sampled_from(["a", "description"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)


def without_descriptions(schema: JsonObject) -> JsonObject:
    found = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in found:
        found["properties"] = {name: without_descriptions(each) for name, each in found["properties"].items()}
    if "items" in found:
        found["items"] = without_descriptions(found["items"])
    return found


def accepts(schema: JsonObject, value: Json) -> bool:
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError:
        return False
    return True


@given(TOOLS, st.sets(st.sampled_from("abf")), VALUES)
def test_shortened_tools_accept_the_same_arguments_and_are_never_longer(
    tools: list[Tool], left_out: set[str], value: Json
) -> None:
    chosen = {tool.ref.tool for tool in tools} - left_out
    forms = shorten_tools(*tools, chosen=chosen)
    for tool, form in zip(tools, forms, strict=True):
        assert without_descriptions(form.input_schema) == without_descriptions(tool.input_schema)
        assert accepts(form.input_schema, value) == accepts(tool.input_schema, value)
        assert len(form.encoded) <= len(tool.encoded)
        assert bool(form.description.strip()) == bool(tool.description.strip())
    assert shorten_tools(*forms, chosen=chosen) == forms
