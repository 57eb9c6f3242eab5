"""One of several processes that share a sign-in: each request finds the token too old, so each one renews it.

Run as `renewer.py DIRECTORY URL ROUNDS`; prints the states of the answers.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import anyio

from toolcrib.connect.http.answers import Call, Refused
from toolcrib.connect.http.client import HttpClient, Patience
from toolcrib.connect.http.requests import Requests
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
    async with HttpClient(web, checked, local_allowed=True, patience=Patience()) as client:
        requests = Requests(client, lambda message, call: None, checked, {}, bearer)
        with anyio.fail_after(30):
            answers = [await status(requests) for _ in range(rounds)]
    sys.stdout.write(json.dumps(answers))


async def status(requests: Requests) -> int:
    """The status of one answer."""
    try:
        await requests.post(Call(), b"", b"{}", may_repeat=False)
    except Refused as refused:
        return refused.status
    return 200


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
