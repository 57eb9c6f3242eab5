"""What every runner keeps to, with the real Claude Code."""

import pytest

from toolcrib.testing.runners import RunnerContract, RunnerRig


class TestClaudeRunner(RunnerContract):
    @pytest.fixture
    def rig(self, request: pytest.FixtureRequest) -> RunnerRig:
        """The one of all tests here."""
        claude: RunnerRig = request.getfixturevalue("rig")
        return claude
