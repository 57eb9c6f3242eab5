"""Findings about the rules of a crib, including the approvals that remembered rules came from."""

from collections.abc import Iterable

import anyio.to_thread

from toolcrib.gate.policy.patterns import glob, parts
from toolcrib.gate.policy.reach import ToolClasses
from toolcrib.gate.policy.rule_proofs import KnownPrincipals, RuleProof, RuleProver
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.rule_findings import REMEMBERED_ID, RuleFinding, check_rules, proof_finding
from toolcrib.host.crib import Crib
from toolcrib.model.approvals import Approval
from toolcrib.model.errors import NotFound
from toolcrib.model.policy import Rule
from toolcrib.model.tools import Tool, ToolRef


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
    proofs = await prove_rules(crib, crib.permissions.rules())
    return [*check_rules(rules, approvals), *map(proof_finding, proofs)]


async def prove_rules(crib: Crib, rules: Rules) -> list[RuleProof]:
    """Return which rules never decide and which conflict, on all tools that are known now.

    A rule for a server whose tools are not known at the moment is not reported as matching nothing.
    """
    silent = await _silent_servers(crib)
    known = await _known_principals(crib, rules.rules)
    own = rules.without(())  # its caches belong to the thread
    proofs = await anyio.to_thread.run_sync(lambda: [*RuleProver(ToolClasses(_all_tools(crib), own), known).prove()])
    return [each for each in proofs if each.kind != "unmatched" or not _may_match(crib, each.rule, silent)]


async def unmatched_rule(crib: Crib, rule: Rule) -> RuleFinding | None:
    """Return the finding for a rule whose pattern matches no known tool, or None."""
    found = await prove_rules(crib, Rules(rules=(rule,)))
    return next((proof_finding(each) for each in found if each.kind == "unmatched"), None)


def _all_tools(crib: Crib) -> list[Tool]:
    """Return the tools of all directories in use. A tool that is the same in several is listed once."""
    tools = (tool for snapshot in crib.catalog.snapshots for tool in snapshot.tools.values())
    return list({id(tool): tool for tool in tools}.values())


async def _silent_servers(crib: Crib) -> frozenset[str]:
    """Return the servers that show no tools now: not connected, or without any."""
    shown = {tool.ref.server for tool in _all_tools(crib)}
    configured = [status.entry.alias for status in await crib.upstreams.list(None)]
    offered = [name for snapshot in crib.catalog.snapshots for name in snapshot.parts]
    return frozenset(name for name in (*configured, *offered) if name not in shown)


def _may_match(crib: Crib, rule: Rule, silent: Iterable[str]) -> bool:
    """Return whether a rule may match a tool that is not in the catalog now: of a silent server, or held back."""
    globs = parts(rule.pattern)
    ref = ToolRef.parse(rule.pattern)
    held = ref is not None and crib.intake.is_held(None, ref)
    return held or (globs is not None and any(glob(globs.server)(server) for server in silent))


async def _known_principals(crib: Crib, rules: Iterable[Rule]) -> KnownPrincipals:
    sessions: set[str] = set()
    for id in {rule.session for rule in rules if rule.session is not None}:
        try:
            sessions.add((await crib.sessions.get(id)).id)
        except NotFound:
            continue
    agents = frozenset(agent.id for agent in await crib.zoo.list())
    return KnownPrincipals(agents, tuple(token.principal for token in crib.tokens.live), frozenset(sessions))
