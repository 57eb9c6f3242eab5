"""`toolcrib open`: opens the console in a browser, signed in.

The address contains a one-time code. It works only with a running crib, because an embedded one ends with the command.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.options import HomeOption, Invocation, JsonOption, begin

if TYPE_CHECKING:
    from toolcrib.base.home import RunInfo


def open_console(
    ctx: typer.Context,
    print_only: Annotated[bool, typer.Option("--print", help="Print the address instead of opening it.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Open the console in a browser, signed in.

    The address works once, within ten minutes.
    """
    from toolcrib.cli.loop import run

    invocation = begin(ctx, home, as_json)
    url, is_open = run(lambda: _open(invocation, print_only=print_only or invocation.as_json))
    if invocation.as_json:
        output.document({"url": url})
    elif is_open:
        output.note(f"Opened {url.partition('/login')[0]} in your browser.")
    else:
        output.line(url)
        if not print_only:
            output.note("No browser found. Open the address above; it works once, within ten minutes.")


async def _open(invocation: Invocation, *, print_only: bool) -> tuple[str, bool]:
    from toolcrib.base.home import owner_token, prepare_home
    from toolcrib.cli import browser
    from toolcrib.cli.signals import until_signalled
    from toolcrib.web.api_client.api_client import ApiClient

    home = prepare_home(invocation.settings.home)
    async with until_signalled(), ApiClient(_running(invocation).url, owner_token(home), source="cli") as client:
        url = await client.login()
        return url, not print_only and await browser.open_console(url, invocation.environment)


def _running(invocation: Invocation) -> "RunInfo":
    from toolcrib.base.home import find_holder, prepare_home
    from toolcrib.model.errors import Unavailable

    holder = find_holder(prepare_home(invocation.settings.home))
    if holder is None:
        raise Unavailable("crib.unreachable", "No crib is running.", "Start one with `toolcrib serve`.")
    return holder
