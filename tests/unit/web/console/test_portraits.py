"""Portraits of agents: deterministic for a seed, and made of known shapes only."""

import base64
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.web.console.portraits import picture, portrait

SEEDS = st.one_of(st.text(max_size=50), st.integers())
SVG = "{http://www.w3.org/2000/svg}"


@given(SEEDS)
def test_portrait_of_any_seed_has_only_known_shapes_and_attributes(seed: str | int) -> None:
    root = ElementTree.fromstring(portrait(seed))
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "rect", "ellipse", "circle", "path", "g")
    }
    allowed = {"viewBox", "width", "height", "cx", "cy", "r", "rx", "ry", "d", "fill", "transform"}
    strokes = {"stroke", "stroke-width", "stroke-linecap", "stroke-linejoin"}
    assert {name for element in root.iter() for name in element.attrib} <= allowed | strokes


@given(SEEDS)
def test_same_seed_has_the_same_portrait(seed: str | int) -> None:
    kind, _, data = picture(seed).partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data).decode() == portrait(seed)


def test_different_seeds_have_different_portraits() -> None:
    assert len({portrait(number) for number in range(200)}) > 150
