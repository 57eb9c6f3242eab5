"""A deny rule that a node loads after its decision on a call."""

from pathlib import Path

import pytest

from cluster.cribs import crib_on
from toolcrib.gate.audit.call_records import CallRecord
from toolcrib.model.errors import Denied

pytestmark = pytest.mark.anyio


async def test_deny_that_is_loaded_while_the_intent_is_stored_binds_the_call(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_intent = CallRecord.intent
    async with crib_on(postgres_url, tmp_path / "a") as first, crib_on(postgres_url, tmp_path / "b") as second:
        owner = second.owner(source="cli")
        assert not (await second.call("toolcrib/ping", {}, principal=owner)).is_error

        async def store_late(record: CallRecord) -> int:
            await first.permissions.add({"effect": "deny", "pattern": "toolcrib/ping"}, by="owner")
            await second.policy.refresh()
            return await store_intent(record)

        monkeypatch.setattr(CallRecord, "intent", store_late)
        with pytest.raises(Denied):
            await second.call("toolcrib/ping", {}, principal=owner)
