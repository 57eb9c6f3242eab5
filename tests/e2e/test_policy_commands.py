"""`toolcrib why`, `rules`, `approvals`, `tokens` and `audit --export` beside a running crib."""

import json
import re
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from deadlines import stretched
from e2e.shell import LIMIT, Shell
from long_tests import takes_long
from toolcrib.gate.audit.export import follow
from toolcrib.model.json import JsonObject


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    """Run a crib that commands join."""
    person = Shell.at(tmp_path_factory.mktemp("policy"))
    with person.serving():
        yield person


def output_of(shell: Shell, *arguments: str) -> str:
    """Run a command, which must succeed, and return its output."""
    done = shell.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def code(shell: Shell, *arguments: str) -> int:
    """Run a command, which must fail with a message and without a traceback, and return its exit code."""
    done = shell.run(*arguments)
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode


def test_rule_denies_a_call_is_explained_and_removed(shell: Shell) -> None:
    made = output_of(shell, "rules", "deny", "lab/fail", "--reason", "It only fails.", "--if", "/message glob secret*")
    found = re.fullmatch(r'Added rule (\w+): deny lab/fail if /message glob "secret\*"\.\n', made)
    assert found, made
    rule = found[1]
    assert code(shell, "tools", "call", "lab/fail", '{"message": "secret plan"}') == 4
    why = output_of(shell, "why", "lab/fail", "--args", '{"message": "secret plan"}')
    assert why.startswith("lab/fail is denied (deny).\n")
    assert re.search(rf"deny +=> +deny +{rule} +user +It only fails\.", why)
    assert f"Remove rule {rule}." in why
    assert shell.json("why", "lab/fail", "--args", '{"message": "plan"}')["verdict"] == "allow"
    listed = output_of(shell, "rules", "list")
    assert re.search(rf"{rule} +deny +lab/fail +/message glob \"secret\*\" +user +It only fails\.", listed)
    assert output_of(shell, "rules", "remove", rule).startswith(f"Removed rule {rule}: ")
    assert code(shell, "rules", "remove", rule) == 3
    assert shell.json("rules", "list") == []


def test_rule_that_compares_a_path_as_text_causes_a_warning_and_is_narrowed(shell: Shell) -> None:
    done = shell.run("rules", "deny", "lab/hold", "--if", "/started glob /etc/*", "--json")
    rule = json.loads(done.stdout)["id"]
    assert "compares the path `/started` as text" in done.stderr
    checked = shell.run("rules", "check", "--json")
    assert (checked.returncode, [each["rule"] for each in json.loads(checked.stdout)]) == (1, [rule])
    assert f"toolcrib rules narrow {rule}" in shell.run("rules", "check").stdout
    assert 'if /started path "/etc/*"' in output_of(shell, "rules", "narrow", rule)
    assert shell.json("rules", "check") == []
    assert code(shell, "tools", "call", "lab/hold", '{"started": "/tmp/../etc/x", "until": "/"}') == 4
    assert code(shell, "rules", "narrow", rule) == 2
    output_of(shell, "rules", "remove", rule)


def test_rule_that_matches_no_tool_warns_and_reach_lists_the_callers(shell: Shell) -> None:
    done = shell.run("rules", "ask", "lba/*", "--json")
    rule = json.loads(done.stdout)["id"]
    assert "matches no tool that is known now" in done.stderr
    assert "matches no tool that is known now" in shell.run("rules", "list").stderr
    assert "rule.matches_nothing" in shell.run("rules", "check").stdout
    table = output_of(shell, "rules", "check", "--reach", "lab/*")
    assert re.search(r"owner \(ide\) +runs +lab/", table)
    output_of(shell, "rules", "remove", rule)


def test_suggested_permissions_are_applied_and_undone(shell: Shell) -> None:
    run = json.loads((shell.home / "run.json").read_text(encoding="utf-8"))
    secret = (shell.home / "token").read_text(encoding="ascii").strip()
    call = f"{run['url']}/api/tools/lab/greet/call?agent=reviewer&mode=acceptEdits"
    body = {"arguments": {"name": "Ada"}}
    answer = httpx2.post(call, json=body, headers={"authorization": f"Bearer {secret}"}, timeout=LIMIT)
    assert answer.json()["isError"] is False, answer.text
    applied = output_of(shell, "rules", "suggest", "--agent", "reviewer", "--apply")
    assert shell.json("agents", "show", "reviewer")["toolPermissions"] == ["lab/greet"]
    undo = re.search(r"run `toolcrib (agents restore reviewer \d+)`", applied)
    assert undo, applied
    output_of(shell, *undo[1].split())
    assert shell.json("agents", "show", "reviewer")["toolPermissions"] != ["lab/greet"]
    assert code(shell, "rules", "suggest", "--apply") == 2


def test_narrowing_an_unknown_rule_exits_3(shell: Shell) -> None:
    done = shell.run("rules", "narrow", "missing", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, "rule.unknown")


def test_unknown_preset_suggests_similar_name(shell: Shell) -> None:
    done = shell.run("rules", "preset", "lethal-trifeca")
    assert done.returncode == 3
    assert "Did you mean lethal-trifecta?" in done.stderr


def test_why_of_unknown_tool_suggests_similar_names_and_exits_3(shell: Shell) -> None:
    done = shell.run("why", "lab/great")
    assert done.returncode == 3
    assert "Did you mean lab/greet" in done.stdout
    done = shell.run("why", "lab/great", "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (3, "unknown")
    assert code(shell, "why", "lab/greet", "--agent", "nobody") == 3


def test_why_explains_the_decision_for_another_source_and_mode(shell: Shell) -> None:
    hidden = shell.json("why", "lab/secret", "--source", "ide")
    assert (hidden["verdict"], hidden["decidedBy"]["step"]) == ("hidden", "permissions")
    assert shell.json("why", "lab/greet", "--mode", "default", "--source", "api")["verdict"] == "ask"


def test_simulated_rule_is_applied_to_recorded_calls(shell: Shell) -> None:
    output_of(shell, "tools", "call", "lab/greet", '{"name": "Ann"}')
    found = shell.json("rules", "simulate", "--add", "deny lab/greet")
    assert found["differences"]
    assert {(each["ref"], each["after"]) for each in found["differences"]} == {("lab/greet", "hidden")}
    (shell.folder / "candidate.toml").write_text('[[rules]]\neffect = "ask"\npattern = "x/*"\n', encoding="utf-8")
    done = shell.run("rules", "simulate", "--file", "candidate.toml")
    assert re.search(r"^0 of \d+ calls would be decided differently", done.stderr)
    assert code(shell, "rules", "simulate", "--add", "dney lab/*") == 2
    number = next(each["auditId"] for each in found["differences"])
    assert "decided allow" in output_of(shell, "why", "--record", str(number))


def pending(shell: Shell) -> JsonObject:
    """Return the only pending approval, as soon as it exists."""
    end = time.monotonic() + stretched(LIMIT)
    while time.monotonic() < end:
        if found := shell.json("approvals", "list"):
            return found[0]
    raise AssertionError("No approval was requested.")


def start_call(shell: Shell, url: str, token: str, arguments: JsonObject) -> "subprocess.Popen[str]":
    """Start a program that calls a tool which requires approval."""
    program = (
        "import sys, httpx2; answer = httpx2.post(sys.argv[1], content=sys.argv[3], timeout=60, trust_env=False,"
        "headers={'authorization': 'Bearer ' + sys.argv[2], 'content-type': 'application/json'}); print(answer.text)"
    )
    body = json.dumps({"arguments": arguments})
    command = [shell.command()[0], "-c", program, f"{url}/api/tools/lab/greet/call", token, body]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_pending_approval_is_shown_in_full_without_control_characters_and_answered(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    with shell.serving() as crib:
        secret = output_of(shell, "tokens", "create", "bot", "--source", "api").strip()
        assert secret.startswith("tcb_")
        name = "\x1b[2JAnn\u202e" + "x" * 2000
        calls = [start_call(shell, crib.url, secret, {"name": name})]
        question = pending(shell)
        shown = output_of(shell, "approvals", "list")
        assert "x" * 2000 in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "CAREFUL:   /name: 2 hidden characters" in shown
        assert (
            output_of(shell, "approvals", "deny", question["id"], "--reason", "Too long.") == "lab/greet was denied.\n"
        )
        assert code(shell, "approvals", "approve", question["id"]) == 1
        calls.append(start_call(shell, crib.url, secret, {"name": "Ann"}))
        again = pending(shell)
        edited = json.dumps({"name": "Bob"})
        done = output_of(shell, "approvals", "approve", again["id"], "--arguments", edited, "--scope", "always")
        assert re.search(
            r"approved\.\nAdded rule answer-\w+: allow lab/greet if .*principal token name bot source api", done
        )
        calls.append(start_call(shell, crib.url, secret, {"name": "Eve"}))
        answers = [call.communicate(timeout=LIMIT)[0] for call in calls]
        assert "Too long." in answers[0]
        assert "Hello, Bob." in answers[1]
        assert "Hello, Eve." in answers[2]
        assert output_of(shell, "tokens", "revoke", "bot") == "Revoked 'bot'.\n"
        refused = start_call(shell, crib.url, secret, {"name": "Ann"}).communicate(timeout=LIMIT)[0]
        assert "auth.invalid" in refused
        assert "revokedAt" in shell.json("tokens", "list")[0]


def test_tables_show_relative_times_and_json_exact_ones(shell: Shell) -> None:
    output_of(shell, "tokens", "create", "clock")
    output_of(shell, "rules", "deny", "lab/none", "--expires", "2199-01-01T00:00:00+00:00")
    output_of(shell, "backup")
    exact = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
    for command in ("audit", "tokens list", "rules list", "backup --list"):
        table = output_of(shell, *command.split())
        assert not exact.search(table)
        assert re.search(r"(now|\d+ (s|min) ago|in \d+ d)\b", table)
        assert exact.search(json.dumps(shell.json(*command.split())))


@takes_long
def test_repeated_approvals_offer_a_rule_that_is_edited_and_limited(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    with shell.serving() as crib:
        secret = output_of(shell, "tokens", "create", "bot", "--source", "api").strip()
        for day in range(3):
            call = start_call(shell, crib.url, secret, {"name": f"friends of day {day}"})
            output_of(shell, "approvals", "approve", pending(shell)["id"])
            call.communicate(timeout=LIMIT)
        call = start_call(shell, crib.url, secret, {"name": "friends of day 3"})
        question = pending(shell)
        offered = output_of(shell, "approvals", "list")
        assert "--prefix 'like the last 3 approvals': Allow calls of lab/greet where `/name` matches" in offered
        limits = (
            "--if",
            "/name glob friends*",
            "--if",
            "/times equals 1",
            "--next",
            "2",
            "--until",
            "2099-12-31T18:00",
        )
        answer = ("approvals", "approve", question["id"], "--scope", "always", "--prefix", "like the last 3 approvals")
        done = shell.run(*answer, *limits, "--yes")
        assert (
            'Changed: with the conditions /name glob "friends*", /times equals 1, for the next 2 calls, until 2099'
            in done.stderr
        )
        assert re.search(r"if /name glob \"friends\*\", .*; ends: 2 more calls, in \d+ d", done.stdout)
        call.communicate(timeout=LIMIT)
        assert re.search(r"2 more calls, in \d+ d", output_of(shell, "rules", "list"))
        for _ in range(2):
            unasked = start_call(shell, crib.url, secret, {"name": "friends"}).communicate(timeout=LIMIT)[0]
            assert "Hello, friends." in unasked
        call = start_call(shell, crib.url, secret, {"name": "friends"})
        output_of(shell, "approvals", "deny", pending(shell)["id"])
        call.communicate(timeout=LIMIT)


def test_audit_chain_is_exported_to_a_private_file_that_verifies(shell: Shell) -> None:
    output_of(shell, "tools", "call", "lab/greet", '{"name": "Ann"}')
    file = shell.folder / "chain.jsonl"
    done = shell.run("audit", "--export", str(file))
    assert done.returncode == 0, done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    lines = file.read_bytes().splitlines(keepends=True)
    assert follow(lines).number == len(lines)
    assert f"Wrote {len(lines)} records" in done.stderr
    assert code(shell, "audit", "--export", str(file)) == 2
    printed = output_of(shell, "audit", "--export", "-").encode().splitlines(keepends=True)
    assert printed[: len(lines)] == lines


def test_rules_of_the_settings_file_apply_and_its_errors_are_reported(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    text = '[[rules]]\neffect = "deny"\npattern = "ping"\n\n[[rules]]\neffect = "deny"\n\n[[limits]]\ncalls = 100\n'
    (shell.home / "toolcrib.toml").write_text(text, encoding="utf-8")
    assert code(shell, "tools", "call", "toolcrib/ping") == 4
    done = shell.run("rules", "list", "--json")
    (rule,) = json.loads(done.stdout)
    assert (rule["pattern"], rule["origin"]["line"]) == ("toolcrib/ping", 1)
    assert "toolcrib.toml:5: This rule is ignored" in done.stderr
    assert "is not a setting" not in done.stderr
    assert code(shell, "rules", "remove", rule["id"]) == 1


def test_unreadable_settings_file_keeps_its_last_rules_in_force(tmp_path: Path) -> None:
    person = Shell.at(tmp_path)
    file = person.home / "toolcrib.toml"
    file.write_text('[[rules]]\neffect = "deny"\npattern = "lab/greet"\n', encoding="utf-8")
    assert code(person, "tools", "call", "lab/greet", '{"name": "Ann"}') == 4
    file.write_text('port = \n[[rules]]\neffect = "deny"\npattern = "lab/greet"\n', encoding="utf-8")
    assert code(person, "tools", "call", "lab/greet", '{"name": "Ann"}') == 4
    listed = person.run("rules", "list")
    assert "lab/greet" in listed.stdout
    assert f"{file}:1: The rules cannot be read" in listed.stderr
    assert "Its last readable content stays in force." in listed.stderr
    assert person.run("tools", "call", "lab/secret", "{}").returncode == 4
    assert "ValueError: x" in person.run("tools", "call", "lab/fail", '{"message": "x"}').stdout


def test_settings_file_that_was_never_readable_denies_every_call_until_it_is_fixed(tmp_path: Path) -> None:
    person = Shell.at(tmp_path)
    file = person.home / "toolcrib.toml"
    file.write_text('log_level = "info"\n[[rules]]\neffect = "deny\n', encoding="utf-8")
    done = person.run("tools", "call", "lab/greet", '{"name": "Ann"}')
    assert (done.returncode, f"{file}, line 3" in done.stderr, "until it is fixed" in done.stderr) == (4, True, True)
    assert person.json("tools", "list") == []
    assert f"{file}:3" in person.run("why", "lab/greet").stdout
    warned = person.run("rules", "list").stderr
    assert f"{file}:3: The rules cannot be read" in warned
    assert "no tool may be used until then" in warned
    file.write_text('log_level = "info"\n', encoding="utf-8")
    assert "Hello, Ann." in output_of(person, "tools", "call", "lab/greet", '{"name": "Ann"}')


@pytest.mark.parametrize("value", [f"0x{'f' * 5_000}", f"{'[' * 300}{']' * 300}"])
def test_settings_file_with_a_value_that_no_record_can_hold_is_one_problem(tmp_path: Path, value: str) -> None:
    person = Shell.at(tmp_path)
    file = person.home / "toolcrib.toml"
    file.write_text('log_level = "info"\n', encoding="utf-8")
    assert "Hello, Ann." in output_of(person, "tools", "call", "lab/greet", '{"name": "Ann"}')
    file.write_text(f"x = {value}\n", encoding="utf-8")
    done = person.run("tools", "call", "lab/greet", '{"name": "Ann"}')
    assert (done.returncode, "Hello, Ann." in done.stdout) == (0, True)
    assert "The settings file is not valid TOML" in done.stderr
    file.unlink()
    assert "Hello, Ann." in output_of(person, "tools", "call", "lab/greet", '{"name": "Ann"}')
