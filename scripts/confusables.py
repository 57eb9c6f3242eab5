"""Writes src/toolcrib/model/confusables.txt: characters that look like ASCII, from Unicode's confusables (UTS #39).

Run it with the library that has the data:
`sh scripts/uv.sh run --with confusable_homoglyphs scripts/confusables.py`.
"""

import json
from collections import defaultdict
from importlib.resources import files
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src/toolcrib/model/confusables.txt"
HEADER = """\
# Characters that look like ASCII, one line for each ASCII text: the text, a tab, the characters.
# Derived from confusables.txt of Unicode Technical Standard #39, (c) Unicode, Inc., Unicode License v3
# (https://www.unicode.org/license.txt). Written by scripts/confusables.py; do not edit.
"""


def main() -> None:
    """Write the file anew."""
    known = json.loads(files("confusable_homoglyphs").joinpath("confusables.json").read_text(encoding="utf-8"))
    alike: defaultdict[str, set[str]] = defaultdict(set)
    for written, twins in known.items():
        character = written.strip("\u200e")  # the library puts marks around right-to-left letters
        texts = [twin["c"] for twin in twins if twin["c"].isascii() and twin["c"].strip()]
        if len(character) == 1 and not character.isascii() and texts:
            alike[min(texts, key=len)].add(character)
    lines = (f"{text}\t{''.join(sorted(characters))}\n" for text, characters in sorted(alike.items()))
    TARGET.write_text(HEADER + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
