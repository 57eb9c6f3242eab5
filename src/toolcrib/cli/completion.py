"""Completion of names by the shell: servers, tools, agents, sessions and approvals of the running crib.

A shell waits for every key, so this asks only a crib that already runs, and briefly. Without one it completes nothing.

Must never start anything, print anything or fail.
"""

from collections.abc import Callable

import typer

SECONDS = 2.0
"""How long a shell waits for names. A crib that just started takes longest for its first answer."""


def names_of(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Return a completion of the names of one kind: `server`, `tool`, `agent`, `session`, `approval` and others."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return [name for name in _ask(kind, _home(ctx)) if name.startswith(incomplete)]

    return complete


def _home(ctx: typer.Context) -> str | None:
    """Return the innermost `--home` of the command line."""
    given = [level.params.get("home") for level in (ctx, ctx.parent, ctx.find_root()) if level is not None]
    return next((str(home) for home in given if home), None)


def _ask(kind: str, given: str | None) -> list[str]:
    import anyio

    from toolcrib.base.home import find_holder, owner_token, prepare_home
    from toolcrib.base.settings import Environment, load_settings
    from toolcrib.cli.options import working_directory
    from toolcrib.cli.suggestions import known_names
    from toolcrib.model.errors import ToolcribError
    from toolcrib.web.api_client.api_client import ApiClient

    async def ask() -> list[str]:
        home = prepare_home(load_settings(Environment.current(), {"home": given}).settings.home)
        holder = find_holder(home)
        if holder is None:
            return []
        with anyio.move_on_after(SECONDS):
            async with ApiClient(holder.url, owner_token(home), source="cli", cwd=working_directory()) as client:
                return await known_names(client, kind)
        return []

    try:
        return sorted(set(anyio.run(ask)))
    except (ToolcribError, OSError):
        return []
