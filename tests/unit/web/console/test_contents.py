"""Results prepared for display in the console."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.web.console.contents import shown

ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "other"])},
    optional={"text": ANYTHING, "data": ANYTHING, "mimeType": ANYTHING, "resource": ANYTHING, "uri": ANYTHING},
)


@given(st.lists(st.one_of(PARTS, ANYTHING), max_size=4))
def test_each_part_of_any_result_has_a_form(content: list[Any]) -> None:
    forms = {"text", "json", "picture", "data", "link", "other"}
    assert all(part["form"] in forms for part in shown(content))
    assert len(shown(content)) == len(content)


def test_only_known_image_types_with_valid_data_are_pictures() -> None:
    def image(media_type: str, data: Any) -> str:
        return shown([{"type": "image", "mimeType": media_type, "data": data}])[0]["form"]

    assert image("image/png", "AAAA") == "picture"
    assert image("image/svg+xml", "AAAA") == "data"
    assert image("text/html", "AAAA") == "data"
    assert image("image/png", 'AAAA" onerror="alert(1)') == "other"
    assert image("image/png", None) == "other"


def test_json_text_is_shown_as_json_and_resources_keep_their_uri() -> None:
    [listed, broken, resource] = shown(
        [
            {"type": "text", "text": " [1]"},
            {"type": "text", "text": "{no"},
            {"type": "resource", "resource": {"uri": "a://b", "blob": "AAAA", "mimeType": "x/y"}},
        ]
    )
    assert listed["value"] == [1]
    assert broken == {"form": "text", "text": "{no"}
    assert resource == {"form": "data", "what": "resource", "mimeType": "x/y", "bytes": 3, "uri": "a://b"}
