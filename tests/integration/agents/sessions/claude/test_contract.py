"""The runtime contract with the real Claude Code."""

import pytest

from toolcrib.testing.runners import RunnerContract, RunnerRig


class TestClaudeRunner(RunnerContract):
    @pytest.fixture
    def rig(self, request: pytest.FixtureRequest) -> RunnerRig:
        """Return the rig of this package."""
        claude: RunnerRig = request.getfixturevalue("rig")
        return claude
