"""The reason for a server's failure: from the error code, otherwise from the output of its program."""

from typing import cast

import pytest

from toolcrib.doctor.crib_checks import check_servers
from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio


class FailingServers:
    """A client whose crib has one failed server."""

    def __init__(self, failed: JsonObject) -> None:
        self._failed = failed

    async def test_servers(self) -> list[JsonObject]:
        return [{"name": "shop", "state": "failed", "sentence": "It failed.", **self._failed}]


async def message_for(**failed: object) -> str:
    """Return the doctor's message on a server that failed like this."""
    client = cast("ApiClient", FailingServers(failed))
    failing, _ = [finding.message async for finding in check_servers(client)]
    return failing


async def test_reason_comes_from_the_error_code() -> None:
    message = await message_for(lastErrorCode="server.timeout", lastError="No reply.", stderr=["certificate expired"])
    assert message == 'Server "shop" did not start: the server did not answer in time.'


async def test_reason_of_an_exit_comes_from_the_output_of_the_program() -> None:
    message = await message_for(lastErrorCode="server.ended", stderr=["npm error code E404"])
    assert message == 'Server "shop" did not start: package not found in the registry.'


async def test_reason_is_not_taken_from_the_cribs_own_wording() -> None:
    message = await message_for(lastErrorCode="server.ended", lastError="It timed out while setting up TLS.", stderr=[])
    assert message == 'Server "shop" did not start.'


async def test_reason_of_an_unreachable_server_comes_from_the_network_error() -> None:
    message = await message_for(lastErrorCode="server.unreachable", lastError="certificate verify failed")
    assert message == 'Server "shop" did not start: the certificate of the server is not accepted.'
