"""Strings that try to run, restyle or hide something on a page."""

import json
import os
from pathlib import Path

CORPUS = os.environ.get("TOOLCRIB_CORPUS")

WORST = (
    "<script>window.ran=1</script>",
    "</script><script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "<svg/onload=window.ran=1>",
    "<svg><animate onbegin=window.ran=1 attributeName=x dur=1s>",
    "\"><img src=x onerror='window.ran=1'>",
    "' autofocus onfocus='window.ran=1' x='",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<details open ontoggle=window.ran=1>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.ran=1>",
    "<a href='javascript:window.ran=1' autofocus>x</a>",
    "[x](javascript:window.ran=1) ![x](https://elsewhere.example/x.png) <javascript:window.ran=1>",
    "<b hx-get='/x' hx-trigger='load' hx-on::load='window.ran=1' data-hx-on:click='window.ran=1'>x</b>",
    "<form action='https://elsewhere.example'><button autofocus>x</button></form>",
    "<style>*{display:none}</style><link rel=stylesheet href=https://elsewhere.example/x.css>",
    "<base href='https://elsewhere.example/'><meta http-equiv=refresh content='0;url=https://elsewhere.example'>",
    "</textarea></pre></title></details><script>window.ran=1</script>",
    "{{ ''.__class__ }}{% set x = 1 %}${window.ran=1}",
    "<!--><img src=x onerror=window.ran=1>--><![CDATA[<script>window.ran=1</script>]]>",
    "&lt;script&gt;window.ran=1&lt;/script&gt;&#60;img src=x onerror=window.ran=1&#62;",
    "\u202e<img src=x onerror=window.ran=1>\u2066\u200b\ufeff",
    "\uff1cscript\uff1ewindow.ran=1\uff1c/script\uff1e",
)
"""Strings for browsers; each sets `ran` if it runs."""


def strings() -> tuple[str, ...]:
    """Return the worst strings, and the lines of the corpus of naughty strings that `TOOLCRIB_CORPUS` names."""
    found = list(WORST)
    if CORPUS:
        path = Path(CORPUS) / "naughty-strings" / "blns.json"
        found += json.loads(path.read_text(encoding="utf-8"))
    lines = (" ".join(each.replace("\0", "").split()) for each in found)
    return tuple(dict.fromkeys(line for line in lines if line))
