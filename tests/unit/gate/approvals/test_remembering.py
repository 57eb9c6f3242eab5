"""What a remembered answer is bound to: never wider than what the approval showed."""

from dataclasses import replace

import pytest

from toolcrib.base.masking.values import shown
from toolcrib.gate.approvals.edited_rule import edited_conditions
from toolcrib.gate.approvals.remembering import propose
from toolcrib.gate.approvals.requests import ApprovalReply, new_approval, remember_as, rule_of_answer
from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.model.approvals import Approval, ApprovalRequest, Scope, Verb
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.policy import Binding, Rule
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.tools import Tool, ToolRef

BASH = ToolRef("claude_code", "Bash")
SESSION = Principal("session", "s1", "web", "default", agent="reviewer", session="s1", cwd="/srv/project")


def approval(arguments: JsonObject, ref: ToolRef = BASH, principal: Principal = SESSION) -> Approval:
    request = ApprovalRequest(ref, tool(ref).definition_hash, canonical(arguments), principal, "session", "why")
    return new_approval(request, 60, propose(request, shown))


def tool(ref: ToolRef) -> Tool:
    return Tool(ref, "", {"type": "object", "properties": {}})


def rule(pending: Approval, *, scope: Scope = "always", verb: Verb = "approve", prefix: str | None = None) -> Rule:
    return rule_of_answer(pending, ApprovalReply(verb, scope, "owner", None, None, prefix), pending.created_at)


def verdict(made: Rule, arguments: JsonObject, ref: ToolRef = BASH, principal: Principal = SESSION) -> str:
    return decide(ref, tool(ref), principal, Grants(), Rules(rules=(made,)), arguments, ()).verdict


def test_remembered_command_allows_only_that_command() -> None:
    made = rule(approval({"command": "ls", "description": "List files"}))
    assert verdict(made, {"command": "ls", "description": "Another word"}) == "allow"
    for other in ("ls -la", "rm -rf ~", "ls; rm -rf ~", "ls\nrm x", ""):
        assert verdict(made, {"command": other}) == "ask"
    assert verdict(made, {}) == "ask"
    assert verdict(made, {"command": "ls", "dangerouslyDisableSandbox": True}) == "ask"


@pytest.mark.parametrize(
    "other",
    [
        replace(SESSION, agent="writer"),
        replace(SESSION, agent=None),
        replace(SESSION, source="cli"),
        replace(SESSION, kind="token", name="laptop"),
        replace(SESSION, cwd="/srv/other"),
        replace(SESSION, mode="plan"),
        replace(SESSION, mode="dontAsk"),
    ],
)
def test_remembered_answer_counts_only_for_the_same_principal_and_mode(other: Principal) -> None:
    made = rule(approval({"command": "ls"}))
    assert verdict(made, {"command": "ls"}, principal=replace(SESSION, session="s2", name="s2")) == "allow"
    assert verdict(made, {"command": "ls"}, principal=other) != "allow"


@pytest.mark.parametrize(
    ("mode", "wider"),
    [
        ("plan", {"plan", "default", "acceptEdits", "bypassPermissions"}),
        ("default", {"default", "acceptEdits", "bypassPermissions"}),
        ("acceptEdits", {"acceptEdits", "bypassPermissions"}),
        ("bypassPermissions", {"bypassPermissions"}),
    ],
)
def test_allow_rule_counts_in_no_narrower_mode(mode: Mode, wider: set[Mode]) -> None:
    assert set(rule(approval({"command": "ls"}, principal=replace(SESSION, mode=mode))).where.modes) == wider


def test_only_a_proposed_prefix_may_be_chosen() -> None:
    pending = approval({"command": "npm test -- --watch"})
    assert [each.text for each in pending.remembering.prefixes] == ["npm test --", "npm test"]
    made = rule(pending, prefix="npm test")
    assert verdict(made, {"command": "npm test -- src"}) == "allow"
    for other in ("npm install", "npm test; rm x", "npm test | sh", "npm test $(rm x)", "npm test > x"):
        assert verdict(made, {"command": other}) == "ask"
    for wider in ("npm", "", "npm run"):
        with pytest.raises(InvalidRequest) as raised:
            rule(pending, prefix=wider)
        assert raised.value.code == "approval.prefix"


@pytest.mark.parametrize(
    "command",
    [
        "ls; rm x",
        "python -c 'x'",
        "sudo rm x",
        "npm run build",
        "git -C /x status",
        "A=1 ls x",
        "echo $(x)",
        "xargs rm",
    ],
)
def test_no_prefix_is_proposed_for_commands_that_run_anything(command: str) -> None:
    pending = approval({"command": command})
    assert pending.remembering.prefixes == ()
    assert verdict(rule(pending), {"command": command}) == "allow"


def test_remembered_file_is_bound_to_its_path_or_a_proposed_directory() -> None:
    write = ToolRef("claude_code", "Write")
    pending = approval({"file_path": "/srv/project/src/a.py", "content": "x"}, write)
    assert [each.text for each in pending.remembering.prefixes] == ["/srv/project/src", "/srv/project"]
    made = rule(pending)
    assert verdict(made, {"file_path": "/srv/project/src/a.py", "content": "y"}, write) == "allow"
    for other in ("/srv/project/src/b.py", "/srv/project/src/a.py/../b.py", "/etc/passwd", "../a.py"):
        assert verdict(made, {"file_path": other, "content": "y"}, write) == "ask"
    wider = rule(pending, prefix="/srv/project/src")
    assert verdict(wider, {"file_path": "src/b.py", "content": "y"}, write) == "allow"
    assert verdict(wider, {"file_path": "/srv/project/src/../../x", "content": "y"}, write) == "ask"


def test_remembered_directory_does_not_cover_files_that_decide_what_runs() -> None:
    write = ToolRef("claude_code", "Write")
    made = rule(approval({"file_path": "/srv/project/a.py", "content": "x"}, write), prefix="/srv/project")
    hook = "/srv/project/.git/hooks/pre-commit"
    given = {"file_path": hook, "content": "x"}
    decision = decide(write, tool(write), SESSION, Grants(), Rules(rules=(made,)), given, [TouchedPath(hook)])
    assert decision.verdict == "ask"
    assert remember_as(approval(given, write)) == {}
    assert verdict(made, {"file_path": "/srv/project/a.py", "paths": [hook], "content": "x"}, write) == "ask"


def test_remembered_url_is_bound_to_itself_or_its_site() -> None:
    fetch = ToolRef("claude_code", "WebFetch")
    pending = approval({"url": "https://docs.python.org/3/", "prompt": "x"}, fetch)
    assert verdict(rule(pending), {"url": "https://evil.example/", "prompt": "x"}, fetch) == "ask"
    site = rule(pending, prefix="https://docs.python.org/")
    assert verdict(site, {"url": "https://docs.python.org/2/x", "prompt": "x"}, fetch) == "allow"
    assert verdict(site, {"url": "https://docs.python.org.evil.example/", "prompt": "x"}, fetch) == "ask"


def test_remembered_denial_covers_the_exact_call_of_the_principal_in_every_mode() -> None:
    made = rule(approval({"command": "rm -rf build"}), verb="deny")
    assert verdict(made, {"command": "rm -rf build"}, principal=replace(SESSION, mode="bypassPermissions")) == "deny"
    assert verdict(made, {"command": "ls"}) == "ask"
    assert verdict(made, {"command": "rm -rf build"}, principal=replace(SESSION, agent="writer")) == "ask"


def test_shown_rule_is_the_written_rule() -> None:
    pending = approval({"command": "git log --oneline"})
    for scope in ("session", "always"):
        for verb in ("approve", "deny"):
            members = rule(pending, scope=scope, verb=verb).to_json()
            proposed = remember_as(pending)[scope][verb]
            assert proposed["rule"] == {
                key: members[key] for key in members if key not in ("id", "createdBy", "createdAt")
            }
    proposed = remember_as(pending)["always"]["approve"]
    assert "git log --oneline" in proposed["sentence"]
    assert "agent reviewer" in proposed["sentence"]
    assert [each["prefix"] for each in proposed["prefixes"]] == ["git log"]


def test_secrets_and_long_arguments_cannot_be_remembered() -> None:
    for command in ("curl -H 'Authorization: Bearer abcdefghijklmnop' x", "echo " + "x" * 3_000):
        pending = approval({"command": command})
        assert remember_as(pending) == {}
        with pytest.raises(InvalidRequest) as raised:
            rule(pending)
        assert raised.value.code == "approval.scope"


def test_rules_for_other_tools_are_bound_to_the_principal() -> None:
    ref = ToolRef("github", "star")
    token = Principal("token", "laptop", "ide", "default", token_id="1")
    made = rule(approval({"repo": "a"}, ref, token))
    assert (made.principal, made.conditions) == (Binding("token", "ide", None, "laptop", "1"), ())
    assert verdict(made, {"repo": "b"}, ref, token) == "allow"
    assert verdict(made, {"repo": "b"}, ref, replace(token, name="phone")) == "ask"
    assert verdict(made, {"repo": "b"}, ref, replace(token, token_id="2")) == "ask", "another token with the same name"


def test_argument_that_the_call_did_not_have_stays_absent() -> None:
    ref = ToolRef("shell", "run")
    runner = Tool(ref, "", {"type": "object", "properties": {"command": {}, "cwd": {}, "url": {}, "note": {}}})
    arguments = {"command": "make test", "url": None}
    request = ApprovalRequest(
        ref,
        runner.definition_hash,
        canonical(arguments),
        SESSION,
        "session",
        "why",
        argument_names=runner.argument_names,
    )
    pending = new_approval(request, 60, propose(request, shown))
    made = rule(pending)

    def verdict_on(**changed: str | None) -> str:
        return decide(ref, runner, SESSION, Grants(), Rules(rules=(made,)), {**arguments, **changed}, ()).verdict

    assert verdict_on(note="Another word") == "allow"
    for changed in ({"cwd": "/srv/other"}, {"url": "https://example.com"}, {"cwd": None}):
        assert verdict_on(**changed) == "ask"
    kept: list[JsonObject] = [
        {"pointer": f"/{name}", "test": "equals", "value": value} for name, value in arguments.items()
    ]
    edited = edited_conditions(pending, pending.remembering.conditions, kept)
    assert ("/cwd", "present", False) in [(each.pointer, each.test, each.value) for each in edited]
