"""Agent portraits: an animal drawn from a seed, identical for the same seed on every machine.

Pure. The seed only selects among fixed parts, so no part of the seed ends up in the SVG. The colours keep their
contrast on light and dark backgrounds and carry no meaning.
"""

import base64
import hashlib
from functools import lru_cache
from typing import Final

_COLOURS: Final = (
    ("#f3d9b1", "#c08447", "#f7e6cf", "#3d2817"),
    ("#cfe6de", "#5c9388", "#e3f2ec", "#1d3530"),
    ("#d9d4ee", "#866bbc", "#ece6f8", "#2a1f45"),
    ("#f4cfcb", "#c4625c", "#fbe5e2", "#431a17"),
    ("#cfe0f2", "#5787bd", "#e4eef9", "#1a2c42"),
    ("#e3e6c8", "#87944b", "#f2f4df", "#2d3315"),
    ("#f0d3e2", "#b5618b", "#f9e6f0", "#3e1a2e"),
    ("#dedede", "#777b83", "#efefef", "#25282d"),
)
"""Background, fur, muzzle and features."""
_EARS: Final = (
    '<circle cx="17" cy="21" r="8" fill="{fur}"/><circle cx="17" cy="21" r="4" fill="{light}"/>',
    '<path d="M13 33 15 9 31 21Z" fill="{fur}"/><path d="M17 26 17.5 15 25 21Z" fill="{light}"/>',
    '<ellipse cx="23" cy="14" rx="6" ry="14" fill="{fur}"/><ellipse cx="23" cy="15" rx="3" ry="10" fill="{light}"/>',
    '<circle cx="11" cy="35" r="10" fill="{fur}"/><circle cx="11" cy="35" r="5.5" fill="{light}"/>',
    '<path d="M14 30C8 18 12 10 14 8 18 14 24 17 29 20Z" fill="{dark}"/>',
    '<path d="M22 22C14 20 12 12 14 6 17 13 24 14 27 19Z" fill="{light}"/>',
)
"""The left ear; the right one is mirrored."""
_EYES: Final = (
    '<circle cx="24.5" cy="34" r="2.8" fill="{dark}"/><circle cx="25.4" cy="33" r="0.9" fill="#fff"/>',
    '<circle cx="24" cy="34" r="5.5" fill="#fff"/><circle cx="25" cy="34.5" r="2.8" fill="{dark}"/>',
    '<path d="M20.5 35c1.5-3 6-3 7.5 0" fill="none" stroke="{dark}" stroke-width="2" stroke-linecap="round"/>',
    '<ellipse cx="24.5" cy="34" rx="2" ry="3.4" fill="{dark}"/>',
)
_FACES: Final = (
    '<ellipse cx="32" cy="44" rx="9" ry="7" fill="{light}"/><ellipse cx="32" cy="41" rx="3" ry="2.2" fill="{dark}"/>'
    '<path d="M32 43v3m-4 0c1.5 2 6.5 2 8 0" fill="none" stroke="{dark}" stroke-width="1.5" stroke-linecap="round"/>',
    '<path d="M27 40h10l-5 8Z" fill="{light}" stroke="{dark}" stroke-width="1.5" stroke-linejoin="round"/>',
    '<path d="M22 42c3 7 17 7 20 0" fill="none" stroke="{dark}" stroke-width="2" stroke-linecap="round"/>'
    '<circle cx="30" cy="39.5" r="0.9" fill="{dark}"/><circle cx="34" cy="39.5" r="0.9" fill="{dark}"/>',
    '<path d="M32 54c-7 0-11-6-11-10 4 0 8-3 11-8 3 5 7 8 11 8 0 4-4 10-11 10Z" fill="{light}"/>'
    '<ellipse cx="32" cy="43" rx="2.6" ry="2" fill="{dark}"/>',
)
_MARKS: Final = (
    "",
    '<path d="M32 19c-3 3-3 7 0 10 3-3 3-7 0-10Z" fill="{light}"/>',
    '<circle cx="19" cy="42" r="2.5" fill="{light}"/><circle cx="45" cy="42" r="2.5" fill="{light}"/>',
    '<path d="M28 20v4m4-5v5m4-4v4" fill="none" stroke="{dark}" stroke-width="1.5" stroke-linecap="round"/>',
)
_MIRROR: Final = '<g transform="matrix(-1 0 0 1 64 0)">'


def portrait(seed: str | int) -> str:
    """Return the portrait as SVG."""
    chosen = hashlib.sha256(str(seed).encode(errors="replace")).digest()
    ground, fur, light, dark = _COLOURS[chosen[0] % len(_COLOURS)]
    ear, eye = _EARS[chosen[1] % len(_EARS)], _EYES[chosen[2] % len(_EYES)]
    face, mark = _FACES[chosen[3] % len(_FACES)], _MARKS[chosen[4] % len(_MARKS)]
    wide, high = 18 + chosen[5] % 4, 17 + chosen[6] % 3
    parts = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" fill="{ground}"/>',
        '<ellipse cx="32" cy="68" rx="21" ry="16" fill="{fur}"/>',
        ear,
        f"{_MIRROR}{ear}</g>",
        f'<ellipse cx="32" cy="38" rx="{wide}" ry="{high}" fill="{{fur}}"/>',
        mark,
        face,
        eye,
        f"{_MIRROR}{eye}</g></svg>",
    )
    return "".join(parts).format(ground=ground, fur=fur, light=light, dark=dark)


@lru_cache(maxsize=512)
def picture(seed: str | int) -> str:
    """Return the portrait as a data URL, so that a page needs no request per portrait."""
    return _address(portrait(seed))


def swatch(colour: str) -> str:
    """Return a dot of this colour (`#61988E`) as a data URL."""
    dot = f'<circle cx="1" cy="1" r="1" fill="{colour}"/>'
    return _address(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 2">{dot}</svg>')


def _address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
