"""Pages for browsers outside the console: errors, sign-in, and links from other sites.

Must never need another request: style sheets and scripts are refused to a browser that is not signed in. The one inline
style is allowed by its hash in the content security policy.
"""

import base64
import hashlib
from html import escape

from toolcrib.model.text import visible

STYLE = """
:root { color-scheme: light dark; --ground: #f6f6f4; --card: #fff; --ink: #1d1d1b; --soft: #5c5c57;
  --line: #d9d9d3; --accent: #0b62c4; --on-accent: #fff; --alarm: #a8201a }
@media (prefers-color-scheme: dark) { :root { --ground: #161615; --card: #20201e; --ink: #ececea; --soft: #a9a9a3;
  --line: #3a3a36; --accent: #6db0ff; --on-accent: #10233c; --alarm: #ff9a92 } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem;
  background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { width: min(30rem, 100%); padding: 2rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .75rem }
h1 { margin: 0 0 .5rem; font-size: 1.25rem; overflow-wrap: anywhere }
p { margin: .5rem 0; overflow-wrap: anywhere }
.brand { color: var(--soft); font-weight: 600 }
.soft { color: var(--soft) }
.wrong { color: var(--alarm) }
code { font: .875em ui-monospace, monospace; background: var(--ground); padding: .1em .35em; border-radius: .25rem }
form { display: grid; gap: .5rem; margin: 1rem 0 0 }
label { font-weight: 600 }
input, button, .button { min-height: 2.75rem; padding: .5rem .75rem; border-radius: .5rem; font: inherit }
input { width: 100%; border: 1px solid var(--soft); background: transparent; color: inherit }
button, .button { display: inline-block; border: 0; background: var(--accent); color: var(--on-accent);
  font-weight: 600; text-decoration: none; cursor: pointer }
button.plain { background: transparent; color: inherit; border: 1px solid var(--soft) }
dl { margin: 1rem 0 }
dt { font-weight: 600; overflow-wrap: anywhere }
dd { margin: .25rem 0 .75rem }
pre { margin: 0; padding: .5rem .75rem; background: var(--ground); border-radius: .5rem;
  font: .875rem/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
@media (max-width: 30rem) { main { padding: 1rem } }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px }
"""
STYLE_HASH = "sha256-" + base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
"""The hash of the style, for the content security policy."""


def refusal_page(title: str, detail: str, hint: str | None) -> str:
    """Return a page with the reason of an error, a hint and a link to the console."""
    advice = f'<p class="soft">{shown_text(hint)}</p>' if hint else ""
    return bare_page(
        title,
        f"<h1>{shown_text(title)}</h1><p>{shown_text(detail)}</p>{advice}"
        '<p><a class="button" href="/">Open console</a></p>',
    )


def sign_in_page(wrong: str | None = None, *, target: str = "/") -> str:
    """Return the page of a browser that is not signed in; it continues at `target`."""
    note = f'<p class="wrong" role="alert">{shown_text(wrong)}</p>' if wrong else ""
    return bare_page(
        "Sign in",
        f"""<h1>Sign in</h1>{note}
<p>Run <code>toolcrib open</code> in a terminal to open a signed-in page.</p>
<form method="post" action="/login">
<input type="hidden" name="next" value="{escape(target)}">
<label for="token">Or enter the owner token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required
 aria-describedby="token-help">
<p class="soft" id="token-help">It is in the file <code>token</code> of the home directory.</p>
<button type="submit">Sign in</button>
</form>""",
    )


def continue_page(target: str) -> str:
    """Return the page for a link on another site, which must not open the console by itself."""
    return bare_page(
        "Continue",
        f"""<h1>Continue to Toolcrib</h1><p>A link on another site leads to this page:</p>
<p><code>{shown_text(target.partition("?")[0])}</code></p>
<p><a class="button" href="{escape(target)}">Continue</a></p>""",
    )


def bare_page(title: str, content: str) -> str:
    """Return a whole page around this content."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{shown_text(title)} · Toolcrib</title>
<style>{STYLE}</style>
</head>
<body><main><p class="brand">Toolcrib</p>{content}
</main></body>
</html>
"""


def shown_text(value: str) -> str:
    """Return untrusted text as HTML, with hidden characters made visible."""
    return escape(visible(value))
