"""`toolcrib serve` in its own process, with the owner's token added to every request.

The conformance suite knows no token. Everything else is the installed program: its own command, event loop and extras.

"""

from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment
from toolcrib.cli.main import run as run_command
from toolcrib.web import run


def main() -> None:
    """Serve as the command line requests."""
    home = prepare_home(Path(Environment.current()["TOOLCRIB_HOME"]))
    token = (b"authorization", f"Bearer {owner_token(home)}".encode())
    make = run.create_app

    def create_app(*arguments: Any, **named: Any) -> ASGIApp:
        app = make(*arguments, **named)

        async def with_token(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "headers": [*scope["headers"], token]}, receive, send)

        return with_token

    run.create_app = create_app
    run_command()


if __name__ == "__main__":
    main()
