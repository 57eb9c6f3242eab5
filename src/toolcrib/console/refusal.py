"""The page of a browser that is let in nowhere: why, and what to do.

Above: `server.problems`. Below: `model`. It must never need a style sheet or a script: who is refused a page is refused
those as well.
"""

from html import escape

from toolcrib.model.text import visible


def refusal_page(title: str, detail: str, hint: str | None) -> str:
    """A page that says why there is nothing to see."""
    advice = f"<p>{_text(hint)}</p>" if hint else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Toolcrib</title>
</head>
<body><h1>{_text(title)}</h1><p>{_text(detail)}</p>{advice}
</body>
</html>
"""


def _text(value: str) -> str:
    return escape(visible(value))
