"""What a trusted definition is started with: variables, files and the output of commands."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import psutil
import pytest

from toolcrib.base.named_secrets import NamedSecrets
from toolcrib.model.errors import Unavailable
from toolcrib.model.servers import Auth, DefinitionSource, ResolvedServer, ServerSpec
from toolcrib.servers.resolve import missing, origins, resolve
from toolcrib.servers.secret_commands import SecretCommands

pytestmark = pytest.mark.anyio

BASE = {"PATH": os.environ.get("PATH", ""), "HOME": "/home/me", "X": "value-of-x", "NAME_ONLY": "by-name"}


def spec(tmp_path: Path, client: str, variables: str) -> ServerSpec:
    """A definition of a project, agreed to with all that it takes."""
    source = DefinitionSource(client, "project", str(tmp_path / "mcp.json"), 1, str(tmp_path), str(tmp_path))
    return ServerSpec("s", "stdio", source, command="x", variables=variables, may_reveal=True)


async def test_values_are_put_in_by_the_files_own_rules(tmp_path: Path) -> None:
    """In VS Code's files only VS Code's syntax counts."""
    own = replace(
        spec(tmp_path, "vscode", "vscode"),
        args=("${env:X}", "${X}", "${workspaceFolder}/a"),
        env={"A": "!id", "B": "NAME_ONLY"},
        cwd="sub",
    )
    resolved = await resolve(own, BASE, SecretCommands(BASE))
    assert resolved.args == ("value-of-x", "${X}", f"{tmp_path}/a")
    assert resolved.env == {"A": "!id", "B": "NAME_ONLY"}
    assert resolved.cwd == str(tmp_path / "sub")


async def test_in_our_own_file_a_value_may_be_a_command_or_the_name_of_a_variable(tmp_path: Path) -> None:
    """Run without a shell, trimmed."""
    command = f"!{sys.executable} -c \"print('  from command; echo no shell  ')\""
    own = replace(
        spec(tmp_path, "toolcrib", "toolcrib"),
        env={"A": command, "B": "NAME_ONLY", "C": "literal", "D": "${X} ${UNSET:-d}"},
    )
    resolved = await resolve(own, BASE, SecretCommands(BASE))
    assert resolved.env == {"A": "from command; echo no shell", "B": "by-name", "C": "literal", "D": "value-of-x d"}
    assert resolved.problems == ()


async def test_a_command_for_a_secret_runs_in_the_users_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository that the crib was started in has no say in what it finds."""
    (tmp_path / "home").mkdir()
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    around = {**BASE, "HOME": str(tmp_path / "home")}
    assert await SecretCommands(around).output("pwd") == str((tmp_path / "home").resolve())


async def test_what_cannot_be_resolved_stays_literal_and_is_named(tmp_path: Path) -> None:
    """The variable, the key, and a command that failed."""
    own = replace(spec(tmp_path, "toolcrib", "toolcrib"), args=("${GONE}",), env={"K": "!false", "L": "${LOST}"})
    resolved = await resolve(own, BASE, SecretCommands(BASE))
    assert resolved.args == ("${GONE}",)
    assert resolved.env == {"L": "${LOST}"}
    messages = " ".join(problem.message for problem in resolved.problems)
    assert all(word in messages for word in ("GONE", "LOST", "env.K"))


async def test_files_that_a_definition_names_are_read_when_it_is_started(tmp_path: Path) -> None:
    """`envFile` and `{file:}`; a missing one is a problem."""
    (tmp_path / ".env").write_text("# c\nexport A='1'\nB=2\n", "utf-8")
    (tmp_path / "token").write_text("secret\n", "utf-8")
    cursor = replace(spec(tmp_path, "cursor", "vscode"), env_file="${workspaceFolder}/.env", env={"B": "own"})
    assert (await resolve(cursor, BASE, SecretCommands(BASE))).env == {"A": "1", "B": "own"}
    opencode = replace(spec(tmp_path, "opencode", "opencode"), args=("{file:./token}", "{file:./gone}"))
    resolved = await resolve(opencode, BASE, SecretCommands(BASE))
    assert resolved.args == ("secret", "{file:./gone}")
    assert [problem.code for problem in resolved.problems] == ["server.secret_missing"]


async def test_headers_from_variables_and_variables_handed_on(tmp_path: Path) -> None:
    """As Codex has them."""
    codex = replace(
        spec(tmp_path, "codex", "none"), env_pass=("X", "GONE"), header_env={"Authorization": "Bearer ${X}"}
    )
    resolved = await resolve(codex, BASE, SecretCommands(BASE))
    assert resolved.headers == {"Authorization": "Bearer value-of-x"}
    assert resolved.env == {"X": "value-of-x"}
    assert ["GONE" in problem.message for problem in resolved.problems] == [True]


def test_listing_names_origins_without_any_value(tmp_path: Path) -> None:
    """Only whether a variable exists."""
    own = replace(
        spec(tmp_path, "toolcrib", "toolcrib"),
        env={"A": "${X}", "B": "!pass", "C": "${UNSET:-d}", "D": "plainsecretvalue123"},
    )
    shown = {origin.key: origin for origin in origins(own, BASE)}
    assert shown["env.A"].origin == "variable X"
    assert "run at connect" in shown["env.B"].origin
    assert shown["env.C"].origin == "variable UNSET, its default"
    assert "value-of-x" not in str(shown)
    assert "plainsecretvalue123" not in str(shown)
    assert missing(own, BASE) == ()


async def test_a_command_runs_once_and_sees_only_the_base_names(tmp_path: Path) -> None:
    """Its answer is kept; nothing of this process leaks."""
    log = tmp_path / "runs"
    script = tmp_path / "secret.py"
    script.write_text(f"import os\nopen({str(log)!r}, 'a').write('x')\nprint(sorted(os.environ))\n", "utf-8")
    commands = SecretCommands({**BASE, "ANTHROPIC_API_KEY": "k"})
    outputs: list[str] = []

    async def ask() -> None:
        outputs.append(await commands.output(f"{sys.executable} {script}"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
    assert len(set(outputs)) == 1
    assert "ANTHROPIC_API_KEY" not in outputs[0]
    assert log.read_text("utf-8") == "x"


@pytest.mark.parametrize(
    "command", ["false", "/no/such/program", "", "'open", f"{sys.executable} -c \"print('x' * 100000)\""]
)
async def test_a_command_that_fails_says_so_without_its_output(command: str) -> None:
    """Exit code, missing program, nonsense, too much."""
    with anyio.fail_after(20), pytest.raises(Unavailable) as caught:
        await SecretCommands(BASE).output(command)
    assert caught.value.code == "secret.command_failed"
    assert "xxxx" not in caught.value.message


async def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    """The time is bounded and nothing stays behind."""
    pid, script = tmp_path / "pid", tmp_path / "hang.py"
    script.write_text(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n",
        "utf-8",
    )
    with anyio.fail_after(20), pytest.raises(Unavailable):
        await SecretCommands(BASE, timeout=1.5).output(f"{sys.executable} {script}")
    process = psutil.Process(int(pid.read_text("utf-8"))) if psutil.pid_exists(int(pid.read_text("utf-8"))) else None
    assert (
        process is None or process.status() == psutil.STATUS_ZOMBIE or not psutil.wait_procs([process], timeout=10)[1]
    )


async def test_a_link_that_is_moved_after_the_yes_hands_nothing_over(tmp_path: Path) -> None:
    """What lay in the project when it was trusted may lead elsewhere when the server is started."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.write_text("private", encoding="utf-8")
    (project / "notes").write_text("public", encoding="utf-8")
    own = replace(spec(project, "opencode", "opencode"), args=("{file:notes}",), may_reveal=False)
    assert (await resolve(own, BASE, SecretCommands(BASE))).args == ("public",)
    (project / "notes").unlink()
    (project / "notes").symlink_to(outside)
    resolved = await resolve(own, BASE, SecretCommands(BASE))
    assert [problem.code for problem in resolved.problems] == ["server.reveals_secrets"]
    assert resolved == ResolvedServer(problems=resolved.problems)


@pytest.mark.parametrize(
    ("command", "syntax"),
    [
        ("pass show x | head -1", "|"),
        ("cat a; cat b", ";"),
        ("cat < file", "<"),
        ("op read $REF", "$R"),
        ('echo "$(id)"', "$("),
        ("echo `id`", "`"),
        ("cat ~/token", "~"),
        ("cat *.key", "*"),
        ("NAME=x env", "="),
        ("echo a # b", "#"),
    ],
)
@pytest.mark.parametrize("client", ["toolcrib", "oh-my-pi"])
async def test_command_with_shell_syntax_is_a_located_problem_and_never_run(
    tmp_path: Path, client: str, command: str, syntax: str
) -> None:
    own = replace(spec(tmp_path, client, client), env={"K": f"!{command}", "L": "literal"})
    [listed] = missing(own, BASE)
    assert (listed.code, listed.file, listed.line) == ("server.secret_missing", own.source.file, own.source.line)
    assert f'env.K uses shell syntax ("{syntax}")' in listed.message
    resolved = await resolve(own, BASE, SecretCommands(BASE))
    assert resolved.env == {"L": "literal"}
    assert resolved.problems == (listed,)


@pytest.mark.parametrize("command", ["sh -c 'echo a | cat'", 'printf "%s" "a;b|c"', "printf %s a\\|b", "echo '$X ~ *'"])
async def test_quoted_shell_syntax_is_plain_text(tmp_path: Path, command: str) -> None:
    own = replace(spec(tmp_path, "toolcrib", "toolcrib"), env={"K": f"!{command}"})
    assert missing(own, BASE) == ()
    assert (await resolve(own, BASE, SecretCommands(BASE))).env.keys() == {"K"}


async def test_client_secret_of_a_sign_in_comes_from_the_keyring(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o700)
    secrets = NamedSecrets(tmp_path / "secrets", keyring_package="no_such_keyring")
    remote = replace(
        spec(tmp_path, "cursor", "env-colon"),
        type="http",
        command=None,
        url="https://a.example/mcp",
        auth=Auth(client_id="app", client_secret="${keyring:APP_SECRET}"),
    )
    (lacks,) = (await resolve(remote, BASE, SecretCommands(BASE), secrets=secrets)).problems
    assert lacks.code == "server.secret_missing" and "auth.clientSecret" in lacks.message
    secrets.put("APP_SECRET", "s3cret-of-the-app", project=str(tmp_path))
    resolved = await resolve(remote, BASE, SecretCommands(BASE), secrets=secrets)
    assert resolved.problems == () and resolved.auth == Auth(client_id="app", client_secret="s3cret-of-the-app")
    assert "s3cret-of-the-app" not in repr(resolved)
