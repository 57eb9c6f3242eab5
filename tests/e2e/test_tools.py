"""`toolcrib tools` and `toolcrib audit`, beside a running crib and without one."""

import json
import re
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.shell import Shell, modes


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a shell. No crib runs."""
    return Shell.at(tmp_path)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shell]:
    """Return a shell beside a running crib. Commands that join it are faster."""
    shell = Shell.at(tmp_path_factory.mktemp("joined"))
    with shell.serving():
        yield shell


def test_list_shows_own_and_built_in_tools_and_leaves_no_crib_running(shell: Shell) -> None:
    done = shell.run("tools", "list")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["TOOL", "EXPOSED", "AS", "MARKS", "DESCRIPTION"]
    assert any(
        re.fullmatch(r"lab/greet +lab_greet +read-only +Greet somebody\. As often as is asked\.", line)
        for line in lines
    )
    assert any(line.startswith("toolcrib/ping ") for line in lines)
    assert done.stderr == ""
    assert not (shell.home / "run.json").exists()


def test_json_list_has_the_public_members_and_filters_by_server(joined: Shell) -> None:
    tools = joined.json("tools", "list", "--server", "lab")
    assert {tool["ref"] for tool in tools} == {
        "lab/greet",
        "lab/fail",
        "lab/hostile",
        "lab/stuck",
        "lab/stubborn",
        "lab/hold",
    }
    greet = next(tool for tool in tools if tool["name"] == "greet")
    assert set(greet) >= {"ref", "server", "name", "exposedName", "description", "inputSchema", "marks", "problems"}
    assert greet["marks"] == {"readOnly": True, "destructive": False, "privileged": False, "schedulerBlocked": False}


def test_list_shows_the_tools_of_a_source(joined: Shell) -> None:
    assert "lab/secret" in {tool["ref"] for tool in joined.json("tools", "list", "--source", "web")}


def test_broken_module_causes_one_warning_and_other_tools_are_listed(shell: Shell) -> None:
    (shell.home / "tools" / "broken.py").write_text("import no_such_module_anywhere\n", encoding="utf-8")
    done = shell.run("tools", "list", "--json")
    assert done.returncode == 0
    assert "lab/greet" in {tool["ref"] for tool in json.loads(done.stdout)}
    assert done.stderr.count("warning: ") == 1
    assert "broken.py" in done.stderr
    assert "no_such_module_anywhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_show_prints_the_whole_description_and_schema(joined: Shell) -> None:
    done = joined.run("tools", "show", "lab/greet")
    assert done.returncode == 0
    assert "Greet somebody.\n\nAs often as is asked." in done.stdout
    assert '"times"' in done.stdout
    assert joined.json("tools", "show", "lab/greet")["ref"] == "lab/greet"


def test_search_lists_matching_tools_with_their_scores(joined: Shell) -> None:
    assert [tool["ref"] for tool in joined.json("tools", "search", "greet", "somebody")] == ["lab/greet"]
    shown = joined.run("tools", "search", "greet", "somebody").stdout
    assert re.search(r"lab/greet +0\.\d\d +\(name: str.*\) +Greet somebody\.", shown), shown
    nothing = joined.run("tools", "search", "quasar")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "No tool matches 'quasar'. Describe the action" in nothing.stderr
    assert "lab" in nothing.stderr


def test_list_with_cost_shows_tokens_calls_and_the_sum_of_each_server(joined: Shell) -> None:
    report = joined.json("tools", "list", "--cost")
    tokens = {each["ref"]: each["tokens"] for each in report["tools"]}
    assert tokens["lab/greet"] > 0
    assert report["estimate"] is True
    done = joined.run("tools", "list", "--cost", "--server", "lab")
    assert done.returncode == 0
    assert "lab/greet" in done.stdout
    assert " of them used in 30 days" in done.stdout
    assert "toolcrib/ping" not in done.stdout
    assert "estimates" in done.stderr


def test_call_prints_text_or_the_whole_answer_as_json(joined: Shell) -> None:
    done = joined.run("tools", "call", "lab/greet", '{"name": "Ada", "times": 2}')
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "Hello, Ada. Hello, Ada.", "")
    answer = joined.json("tools", "call", "lab/greet", '{"name": "Ada"}')
    assert set(answer) >= {"isError", "content", "durationMs", "auditId"}
    assert answer["content"][0]["text"] == "Hello, Ada. "


def test_arguments_may_come_from_standard_input(joined: Shell) -> None:
    done = joined.run("tools", "call", "lab/greet", "-", stdin='{"name": "Grace"}')
    assert (done.returncode, done.stdout.strip()) == (0, "Hello, Grace.")


def test_arguments_over_the_limit_are_refused(joined: Shell) -> None:
    small = joined.having(TOOLCRIB_MAX_BODY_BYTES="2048")
    done = small.run("tools", "call", "lab/greet", "-", stdin=json.dumps({"name": "x" * 4000}))
    assert done.returncode == 2
    assert "longer than 2048 bytes" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["lab/fail", '{"message": "no luck"}'], 1, "no luck"),
        (["lab/greet", '{"nane": "Ada"}'], 1, "name"),
        (["lab/greed", "{}"], 3, "Did you mean lab/greet"),
        (["toolcribb/ping", "{}"], 3, "Did you mean toolcrib/ping?"),
        (["lab/secret", "{}"], 4, "lab/secret"),
    ],
)
def test_exit_code_depends_on_the_outcome_of_the_call(
    joined: Shell, arguments: list[str], code: int, text: str
) -> None:
    done = joined.run("tools", "call", *arguments)
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    with_json = joined.run("tools", "call", *arguments, "--json")
    assert with_json.returncode == code
    answer = json.loads(with_json.stdout)
    assert answer["isError"] is True if code == 1 else answer["error"]["code"]


@pytest.mark.parametrize("tool", ["lab/stuck", "lab/stubborn"])
def test_tool_that_cannot_be_cancelled_does_not_block_the_command(shell: Shell, tool: str) -> None:
    done = shell.run("tools", "call", tool)
    assert done.returncode == 1
    assert "0.2 s" in done.stdout


def test_control_characters_of_tools_are_escaped_in_text_and_kept_in_json(joined: Shell) -> None:
    for line in (["tools", "call", "lab/hostile"], ["tools", "show", "lab/hostile"], ["tools", "list"]):
        done = joined.run(*line)
        assert done.returncode == 0
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", done.stdout)
        assert r"\u{" in done.stdout
    raw = joined.run("tools", "call", "lab/hostile", "--json").stdout
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", raw)
    assert json.loads(raw)["content"][0]["text"] == "\x1b]52;c;ZXZpbA==\x07\u202egpj.exe\r done"


def test_closed_output_pipe_is_no_error(joined: Shell) -> None:
    line = f"{subprocess.list2cmdline(joined.command('tools', 'list', '--json'))} | head -n 1"
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=joined.folder, env=joined.variables, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_every_call_is_audited_and_the_chain_is_intact(shell: Shell) -> None:
    shell.run("tools", "call", "lab/greet", '{"name": "Ada"}')
    with shell.serving():
        shell.run("tools", "call", "lab/fail", '{"message": "x"}')
        records = shell.json("audit", "--server", "lab")
        assert [(record["tool"], record["phase"]) for record in records] == [
            ("fail", "outcome"), ("fail", "intent"), ("greet", "outcome"), ("greet", "intent"),
        ]  # fmt: skip
        assert records[0]["principal"]["cwd"] == str(shell.folder)
        assert {record["door"] for record in records} == {"cli"}
        assert shell.json("audit", "--tool", "greet", "--phase", "intent", "--limit", "1")[0]["tool"] == "greet"
        shown = shell.run("audit").stdout.splitlines()
        assert re.search(r"outcome +cli +owner/cli +lab/fail +allow +failed in [\d.]+ ms", shown[1])
        done = shell.run("audit", "verify")
        assert (done.returncode, done.stdout) == (0, "Verified 4 records: the chain is intact.\n")


def test_verify_detects_a_truncated_chain(shell: Shell) -> None:
    shell.run("tools", "call", "lab/greet", '{"name": "Ada"}')
    for path in shell.home.glob("toolcrib.db*"):
        path.unlink()
    done = shell.run("audit", "verify", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False
    assert "is broken:" in shell.run("audit", "verify").stdout


def test_invalid_filter_is_a_usage_error(joined: Shell) -> None:
    done = joined.run("audit", "--since", "yesterday-ish")
    assert done.returncode == 2
    assert "since" in done.stderr


def test_concurrent_commands_share_the_home(shell: Shell) -> None:
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(shell.run, "tools", "call", "lab/greet", '{"name": "Ada"}') for _ in range(4)]
    assert [call.result().returncode for call in calls] == [0] * 4, [call.result().stderr for call in calls]
    assert shell.json("audit", "verify")["records"] == 8


def test_files_in_the_home_are_private_whatever_the_umask(shell: Shell) -> None:
    done = shell.run(
        "tools", "call", "lab/greet", '{"name": "Ada"}', preexec=["/bin/sh", "-c", 'umask 0; exec "$@"', "sh"]
    )
    assert done.returncode == 0, done.stderr
    found = modes(shell.home)
    own = {name: mode for name, mode in found.items() if not name.startswith("tools/")}
    assert {name for name, mode in own.items() if mode & 0o077} == set()
    assert {"token", "toolcrib.db", "audit.head", "lock", "logs/toolcrib.log"} <= set(own)


def test_damaged_database_is_an_error_without_a_traceback(shell: Shell) -> None:
    (shell.home / "toolcrib.db").write_bytes(b"this is not a database" * 1000)
    done = shell.run("tools", "list")
    assert done.returncode == 5
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_unused_tools_are_hidden_after_consent_and_shown_again(shell: Shell) -> None:
    hide = ("tools", "list", "--cost", "--apply")
    with shell.serving():
        assert shell.run(*hide).returncode == 2
        silent = shell.run(*hide, "--source", "ide", stdin="")
        assert (silent.returncode, "requires confirmation" in silent.stderr) == (2, True)
        assert shell.json("rules", "list") == []
        done = shell.run(*hide, "--source", "ide", "--yes")
        assert (done.returncode, done.stdout.startswith("Hid ")) == (0, True), done.stderr
        hidden = shell.json("rules", "list")
        assert {(rule["effect"], rule["where"]["sources"][0]) for rule in hidden} == {("deny", "ide")}
        undone = shell.json("tools", "list", "--cost", "--undo")
        assert (len(undone["rules"]), shell.json("rules", "list")) == (len(hidden), [])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["tools", "list", "--server", "toolcrb"], "Did you mean toolcrib?"),
        (["tools", "list", "--agent", "reviewr"], "Did you mean reviewer?"),
        (["chat", "--agent", "reviewr", "Hello."], "Did you mean reviewer?"),
        (["mcp", "trust", "./tolls"], "tools?"),
    ],
)
def test_unknown_name_in_a_filter_exits_3_with_a_suggestion(joined: Shell, words: list[str], hint: str) -> None:
    (joined.folder / "tools").mkdir(exist_ok=True)
    done = joined.run(*words)
    assert done.returncode == 3, done.stderr
    assert hint in done.stderr


def test_descriptions_are_shortened_and_restored(joined: Shell) -> None:
    plan = joined.json("tools", "shorten")
    first = plan["tools"][0]["ref"]
    assert (plan["dryRun"], "listed" in joined.json("tools", "show", first)) == (True, False)
    done = joined.run("tools", "shorten", first, "--apply")
    assert (done.returncode, "Saves" in done.stdout, "--undo" in done.stderr) == (0, True, True)
    assert "listed, shortened:" in joined.run("tools", "show", first).stdout
    assert "Shortened descriptions save" in joined.run("tools", "list", "--cost").stderr
    assert joined.json("tools", "shorten", "--undo")["whole"] == [first]
    assert joined.run("tools", "shorten", "no/such").returncode == 3
    assert joined.run("tools", "shorten", "--apply", "--undo").returncode == 2
