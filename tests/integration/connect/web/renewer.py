"""One of several processes that share a sign-in: each request finds the token too old, so each one renews it.

Run as `renewer.py DIRECTORY URL ROUNDS`; prints the states of the answers.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import anyio

from toolcrib.connect.oauth import Bearer
from toolcrib.connect.shelves import FileShelf
from toolcrib.connect.tokens import Tokens
from toolcrib.connect.urls import check_url
from toolcrib.connect.web import open_web


async def main(directory: Path, url: str, rounds: int) -> None:
    """Ask so many times, an hour apart as this process sees it."""
    hours = itertools.count(step=3600)
    tokens = Tokens(FileShelf(directory / "credentials.json"), directory)
    checked = check_url(url, local_allowed=True)
    web = await open_web()
    bearer = Bearer(web, tokens, "lab", checked, now=lambda: time.time() + 7200, clock=lambda: float(next(hours)))
    async with web.client(local_allowed=True, auth=bearer) as client:
        with anyio.fail_after(30):
            answers = [(await client.get(checked.text)).status_code for _ in range(rounds)]
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
