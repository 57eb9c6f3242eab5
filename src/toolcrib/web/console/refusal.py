"""The error page for browsers that are denied every page.

Must never need a style sheet or a script, since those requests are denied as well.
"""

from html import escape

from toolcrib.model.text import visible


def refusal_page(title: str, detail: str, hint: str | None) -> str:
    """Return an HTML page with the reason and a hint."""
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
