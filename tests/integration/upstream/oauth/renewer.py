"""One of several processes that share a sign-in; each request finds the token expired and refreshes it.

Usage: renewer.py DIRECTORY URL ROUNDS. Prints the statuses of the answers.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import anyio

from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import open_web
from toolcrib.base.secret_store import FileSecretStore
from toolcrib.upstream.credentials import CredentialStore
from toolcrib.upstream.http.client import HttpClient, HttpTimeouts
from toolcrib.upstream.http.requests import Requests
from toolcrib.upstream.http.responses import HttpCall, RequestRefused
from toolcrib.upstream.oauth.token_refresh import Bearer


async def main(directory: Path, url: str, rounds: int) -> None:
    """Send this many requests, one hour apart by the process's clock."""
    hours = itertools.count(step=3600)
    tokens = CredentialStore(directory, store=FileSecretStore(directory / "credentials.json"))
    checked = check_url(url, local_allowed=True)
    web = await open_web({})
    bearer = Bearer(web, tokens, "lab", checked, now=lambda: time.time() + 7200, clock=lambda: float(next(hours)))
    async with HttpClient(web, checked, local_allowed=True, timeouts=HttpTimeouts()) as client:
        requests = Requests(client, lambda message, call: None, checked, {}, bearer)
        with anyio.fail_after(30):
            answers = [await status(requests) for _ in range(rounds)]
    sys.stdout.write(json.dumps(answers))


async def status(requests: Requests) -> int:
    """Return the status of one answer."""
    try:
        await requests.post(HttpCall(), b"", b"{}", may_repeat=False)
    except RequestRefused as refused:
        return refused.status
    return 200


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
