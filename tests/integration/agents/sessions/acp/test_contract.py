"""The runtime contract with the scripted ACP agent."""

import pytest

from long_tests import takes_long
from toolcrib.testing.runners import RunnerContract, RunnerRig


@takes_long
class TestAcpRunner(RunnerContract):
    @pytest.fixture
    def rig(self, request: pytest.FixtureRequest) -> RunnerRig:
        """Return the rig of this package."""
        agent: RunnerRig = request.getfixturevalue("rig")
        return agent
