"""Findings about the rules of a crib, including the approvals that remembered rules came from."""

from toolcrib.gate.rule_findings import REMEMBERED_ID, RuleFinding, check_rules
from toolcrib.host.crib import Crib
from toolcrib.model.approvals import Approval
from toolcrib.model.errors import NotFound


async def find_rule_findings(crib: Crib) -> list[RuleFinding]:
    """Return the problems of the rules in force, each with a narrower proposal where there is one."""
    rules = crib.permissions.list()
    approvals: dict[str, Approval] = {}
    for rule in rules:
        if rule.id.startswith(REMEMBERED_ID):
            try:
                approval = await crib.approvals.get(rule.id.removeprefix(REMEMBERED_ID))
            except NotFound:
                continue
            approvals[approval.id] = approval
    return check_rules(rules, approvals)
