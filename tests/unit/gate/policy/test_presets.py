"""The bundles that come with Toolcrib."""

from toolcrib.gate.policy.bundles import PRESETS
from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.patterns import parts
from toolcrib.gate.policy.rules import Rules
from toolcrib.model.tools import Tool, ToolRef
from unit.gate.policy.test_rules import ASKER


def test_each_has_a_name_a_purpose_a_prompt_and_patterns_that_can_be_read() -> None:
    assert [bundle.name for bundle in PRESETS] == ["Researcher", "Reviewer", "Operator"]
    assert len({bundle.id for bundle in PRESETS}) == len(PRESETS)
    for bundle in PRESETS:
        assert bundle.preset
        assert bundle.description
        assert bundle.prompt
        assert bundle.tools
        assert all(parts(pattern) is not None for pattern in bundle.tools)


def test_a_preset_gives_its_tools_to_an_agent_that_has_none() -> None:
    reviewer = next(bundle for bundle in PRESETS if bundle.id == "reviewer")
    read, bash = (Tool(ToolRef("claude_code", name), "", {}) for name in ("Read", "Bash"))
    grants = Grants((), reviewer.tools)
    assert decide(read.ref, read, ASKER, grants, Rules()).visible
    assert not decide(bash.ref, bash, ASKER, grants, Rules()).visible
