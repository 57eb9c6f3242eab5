"""The bundles that are included in Toolcrib."""

from toolcrib.gate.policy.bundles import PRESETS
from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.patterns import parts
from toolcrib.gate.policy.rules import Rules
from toolcrib.model.tools import Tool, ToolRef
from unit.gate.policy.test_rules import CALLER


def test_each_preset_is_complete_and_has_valid_patterns() -> None:
    assert [bundle.name for bundle in PRESETS] == ["Researcher", "Reviewer", "Operator"]
    assert len({bundle.id for bundle in PRESETS}) == len(PRESETS)
    for bundle in PRESETS:
        assert bundle.preset
        assert bundle.description
        assert bundle.prompt
        assert bundle.tools
        assert all(parts(pattern) is not None for pattern in bundle.tools)


def test_preset_grants_its_tools_to_an_agent_without_permissions() -> None:
    reviewer = next(bundle for bundle in PRESETS if bundle.id == "reviewer")
    read, bash = (Tool(ToolRef("claude_code", name), "", {}) for name in ("Read", "Bash"))
    grants = Grants((), reviewer.tools)
    assert decide(read.ref, read, CALLER, grants, Rules()).visible
    assert not decide(bash.ref, bash, CALLER, grants, Rules()).visible
