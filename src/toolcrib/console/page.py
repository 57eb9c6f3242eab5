"""The one page of the console: which crib this is, how to connect, which tools and servers there are, what is wrong.

Pure functions from values to HTML, without any script. Names and descriptions come from others: they are escaped, and
characters that hide or reorder text are shown by their number.
"""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from toolcrib.model.problems import Problem
from toolcrib.model.servers import ServerEntry, Source
from toolcrib.model.text import visible
from toolcrib.model.tools import Marks, Tool

STYLE_PATH = "/static/console.css"
TOOLS_SHOWN = 1000
STATES = {"not_checked": "not checked", "untrusted": "not trusted"}
"""States in words, where the word of the API is not one."""
_STYLE_FILE = Path(__file__).parent / "static" / "console.css"


@dataclass(frozen=True, slots=True)
class CribView:
    """What the page tells of a crib. `token_file` is where the token lies; the token itself is never shown."""

    version: str
    home: str
    started_at: str
    mcp_url: str
    token_file: str
    tools: Sequence[Tool]
    servers: Sequence[ServerEntry]
    problems: Sequence[Problem]


def style() -> bytes:
    """The style sheet."""
    return _STYLE_FILE.read_bytes()


def crib_page(crib: CribView) -> str:
    """The page of a crib."""
    body = f"""
<header>
  <h1>Toolcrib</h1>
  <p>{text(crib.version)} · home <code>{text(crib.home)}</code> · up since {text(crib.started_at)}</p>
</header>
<main>
{_connect(crib)}
{_problems(crib.problems)}
{_tools(crib.tools)}
{_found(crib.servers)}
</main>"""
    return _document("Toolcrib", body, styled=True)


def refusal_page(title: str, detail: str, hint: str | None) -> str:
    """A page that says why there is nothing to see."""
    advice = f"<p>{text(hint)}</p>" if hint else ""
    return _document("Toolcrib", f"<h1>{text(title)}</h1><p>{text(detail)}</p>{advice}", styled=False)


def text(value: str) -> str:
    """Text of others as HTML: escaped, with nothing invisible in it."""
    return escape(visible(value))


def _document(title: str, body: str, *, styled: bool) -> str:
    # A refused browser may not load the style sheet either, so its page does without.
    link = f'<link rel="stylesheet" href="{STYLE_PATH}">' if styled else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
{link}
</head>
<body>{body}
</body>
</html>
"""


def _connect(crib: CribView) -> str:
    token = f'"Authorization: Bearer $(cat {shlex.quote(crib.token_file)})"'
    command = f"claude mcp add --transport http toolcrib {crib.mcp_url} --header {token}"
    return f"""<section aria-labelledby="connect">
<h2 id="connect">Connect a client</h2>
<dl>
  <dt>MCP address</dt><dd><code>{text(crib.mcp_url)}</code></dd>
  <dt>Header</dt><dd><code>Authorization: Bearer …</code>, with the token from <code>{text(crib.token_file)}</code></dd>
</dl>
<p>For Claude Code, in a terminal:</p>
<pre tabindex="0"><code>{text(command)}</code></pre>
<p>A client that starts its servers itself runs:</p>
<pre tabindex="0"><code>toolcrib stdio</code></pre>
</section>"""


def _problems(problems: Sequence[Problem]) -> str:
    if not problems:
        return ""
    items = "\n".join(f"<li>{_problem(problem)}</li>" for problem in problems)
    return f"""<section aria-labelledby="problems" class="problems">
<h2 id="problems">Problems <span class="count">{len(problems)}</span></h2>
<ul>
{items}
</ul>
</section>"""


def _problem(problem: Problem) -> str:
    place = ""
    if problem.file:
        place = f" <code>{text(problem.file)}{f':{problem.line}' if problem.line else ''}</code>"
    hint = f"<br><small>{text(problem.hint)}</small>" if problem.hint else ""
    return f"{text(problem.message)}{place}{hint}"


def _tools(tools: Sequence[Tool]) -> str:
    shown = tools[:TOOLS_SHOWN]
    servers = "\n".join(_server(name, list(group)) for name, group in groupby(shown, lambda tool: tool.ref.server))
    rest = len(tools) - len(shown)
    more = f"<p>{rest} more: <code>toolcrib tools list</code> shows them all.</p>" if rest else ""
    return f"""<section aria-labelledby="tools">
<h2 id="tools">Tools <span class="count">{len(tools)}</span></h2>
{servers}
{more}
</section>"""


def _server(name: str, tools: Sequence[Tool]) -> str:
    rows = "\n".join(_tool(tool) for tool in tools)
    return f"""<details open>
<summary><h3>{text(name)}</h3> <span class="count">{len(tools)}</span></summary>
<ul class="tools">
{rows}
</ul>
</details>"""


def _tool(tool: Tool) -> str:
    badges = "".join(f' <span class="mark">{mark}</span>' for mark in _marks(tool.marks))
    problems = "".join(f'<p class="problem">{_problem(problem)}</p>' for problem in tool.problems)
    return f"<li><code>{text(tool.ref.tool)}</code>{badges}<p>{text(tool.description)}</p>{problems}</li>"


def _found(servers: Sequence[ServerEntry]) -> str:
    """The servers of other tools: what there is, in which state, where it stands."""
    if not servers:
        return """<section aria-labelledby="servers">
<h2 id="servers">MCP servers on this machine <span class="count">0</span></h2>
<p>No coding tool of yours is configured to use one; <code>toolcrib mcp add</code> adds one here.</p>
</section>"""
    rows = "\n".join(_found_server(server) for server in servers)
    return f"""<section aria-labelledby="servers">
<h2 id="servers">MCP servers on this machine <span class="count">{len(servers)}</span></h2>
<p>As your coding tools are configured. Nothing was started or contacted.</p>
<ul class="tools framed">
{rows}
</ul>
</section>"""


def _found_server(server: ServerEntry) -> str:
    places = "".join(f"<p>{text(_place(source))}</p>" for source in server.sources or (server.source,))
    problems = "".join(f'<p class="problem">{_problem(problem)}</p>' for problem in server.problems)
    state = STATES.get(server.state, server.state)
    return f'<li><code>{text(server.name)}</code> <span class="mark">{text(state)}</span>{places}{problems}</li>'


def _place(source: Source) -> str:
    return f"{source.client}: {source.file}{f':{source.line}' if source.line else ''}"


def _marks(marks: Marks) -> Iterable[str]:
    if marks.read_only:
        yield "reads only"
    if marks.destructive:
        yield "destructive"
    if marks.privileged:
        yield "privileged"
    if marks.scheduler_blocked:
        yield "not on a schedule"
