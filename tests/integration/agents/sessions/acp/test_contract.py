"""What every runner keeps to, with the small agent."""

import pytest

from long_tests import takes_long
from toolcrib.testing.runners import RunnerContract, RunnerRig


@takes_long
class TestAcpRunner(RunnerContract):
    @pytest.fixture
    def rig(self, request: pytest.FixtureRequest) -> RunnerRig:
        """The one of all tests here."""
        agent: RunnerRig = request.getfixturevalue("rig")
        return agent
