"""What every runner keeps to, with the small agent."""

import pytest

from toolcrib.testing.runners import RunnerContract, RunnerRig


class TestAcpRunner(RunnerContract):
    @pytest.fixture
    def rig(self, request: pytest.FixtureRequest) -> RunnerRig:
        """The one of all tests here."""
        agent: RunnerRig = request.getfixturevalue("rig")
        return agent
