"""Values of a trusted definition at the start of its server: variables, files and output of commands."""

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
    """Return a definition of a project that is trusted with its secrets."""
    source = DefinitionSource(client, "project", str(tmp_path / "mcp.json"), 1, str(tmp_path), str(tmp_path))
    return ServerSpec("s", "stdio", source, command="x", variables=variables, may_reveal=True)


async def test_variables_follow_the_syntax_of_the_app(tmp_path: Path) -> None:
    """In files of VS Code, only its own syntax counts."""
    definition = replace(
        spec(tmp_path, "vscode", "vscode"),
        args=("${env:X}", "${X}", "${workspaceFolder}/a"),
        env={"A": "!id", "B": "NAME_ONLY"},
        cwd="sub",
    )
    resolved = await resolve(definition, BASE, SecretCommands(BASE))
    assert resolved.args == ("value-of-x", "${X}", f"{tmp_path}/a")
    assert resolved.env == {"A": "!id", "B": "NAME_ONLY"}
    assert resolved.cwd == str(tmp_path / "sub")


async def test_own_file_allows_commands_and_names_of_variables(tmp_path: Path) -> None:
    """Commands run without a shell; their output is trimmed."""
    command = f"!{sys.executable} -c \"print('  from command; echo no shell  ')\""
    definition = replace(
        spec(tmp_path, "toolcrib", "toolcrib"),
        env={"A": command, "B": "NAME_ONLY", "C": "literal", "D": "${X} ${UNSET:-d}"},
    )
    resolved = await resolve(definition, BASE, SecretCommands(BASE))
    assert resolved.env == {"A": "from command; echo no shell", "B": "by-name", "C": "literal", "D": "value-of-x d"}
    assert resolved.problems == ()


async def test_secret_command_runs_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory in which the crib was started does not matter."""
    (tmp_path / "home").mkdir()
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    environment = {**BASE, "HOME": str(tmp_path / "home")}
    assert await SecretCommands(environment).output("pwd") == str((tmp_path / "home").resolve())


async def test_unresolved_values_stay_literal_and_are_problems(tmp_path: Path) -> None:
    """The problems name the variable, the key and the failed command."""
    definition = replace(spec(tmp_path, "toolcrib", "toolcrib"), args=("${GONE}",), env={"K": "!false", "L": "${LOST}"})
    resolved = await resolve(definition, BASE, SecretCommands(BASE))
    assert resolved.args == ("${GONE}",)
    assert resolved.env == {"L": "${LOST}"}
    messages = " ".join(problem.message for problem in resolved.problems)
    assert all(word in messages for word in ("GONE", "LOST", "env.K"))


async def test_files_named_by_a_definition_are_read(tmp_path: Path) -> None:
    """Covers `envFile` and `{file:}`; a missing file is a problem."""
    (tmp_path / ".env").write_text("# c\nexport A='1'\nB=2\n", "utf-8")
    (tmp_path / "token").write_text("secret\n", "utf-8")
    cursor = replace(spec(tmp_path, "cursor", "vscode"), env_file="${workspaceFolder}/.env", env={"B": "own"})
    assert (await resolve(cursor, BASE, SecretCommands(BASE))).env == {"A": "1", "B": "own"}
    opencode = replace(spec(tmp_path, "opencode", "opencode"), args=("{file:./token}", "{file:./gone}"))
    resolved = await resolve(opencode, BASE, SecretCommands(BASE))
    assert resolved.args == ("secret", "{file:./gone}")
    assert [problem.code for problem in resolved.problems] == ["server.secret_missing"]


async def test_codex_headers_and_passed_variables_are_resolved(tmp_path: Path) -> None:

    codex = replace(
        spec(tmp_path, "codex", "none"), env_pass=("X", "GONE"), header_env={"Authorization": "Bearer ${X}"}
    )
    resolved = await resolve(codex, BASE, SecretCommands(BASE))
    assert resolved.headers == {"Authorization": "Bearer value-of-x"}
    assert resolved.env == {"X": "value-of-x"}
    assert ["GONE" in problem.message for problem in resolved.problems] == [True]


def test_origins_show_no_values(tmp_path: Path) -> None:
    """Origins only state whether a variable is set."""
    definition = replace(
        spec(tmp_path, "toolcrib", "toolcrib"),
        env={"A": "${X}", "B": "!pass", "C": "${UNSET:-d}", "D": "plainsecretvalue123"},
    )
    shown = {origin.key: origin for origin in origins(definition, BASE)}
    assert shown["env.A"].origin == "variable X"
    assert "run at connect" in shown["env.B"].origin
    assert shown["env.C"].origin == "variable UNSET, its default"
    assert "value-of-x" not in str(shown)
    assert "plainsecretvalue123" not in str(shown)
    assert missing(definition, BASE) == ()


async def test_secret_command_runs_once_with_a_minimal_environment(tmp_path: Path) -> None:
    """Concurrent callers share the result."""
    log = tmp_path / "runs"
    script = tmp_path / "secret.py"
    script.write_text(f"import os\nopen({str(log)!r}, 'a').write('x')\nprint(sorted(os.environ))\n", "utf-8")
    commands = SecretCommands({**BASE, "ANTHROPIC_API_KEY": "k"})
    outputs: list[str] = []

    async def fetch() -> None:
        outputs.append(await commands.output(f"{sys.executable} {script}"))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(fetch)
    assert len(set(outputs)) == 1
    assert "ANTHROPIC_API_KEY" not in outputs[0]
    assert log.read_text("utf-8") == "x"


@pytest.mark.parametrize(
    "command", ["false", "/no/such/program", "", "'open", f"{sys.executable} -c \"print('x' * 100000)\""]
)
async def test_failed_secret_command_hides_its_output(command: str) -> None:
    """Covers exit codes, missing programs, invalid syntax and oversized output."""
    with anyio.fail_after(20), pytest.raises(Unavailable) as caught:
        await SecretCommands(BASE).output(command)
    assert caught.value.code == "secret.command_failed"
    assert "xxxx" not in caught.value.message


async def test_hanging_secret_command_is_killed_with_its_children(tmp_path: Path) -> None:

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


async def test_symlink_changed_after_trust_reveals_nothing(tmp_path: Path) -> None:
    """A file inside the project when it was trusted may be a link when the server starts."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.write_text("private", encoding="utf-8")
    (project / "notes").write_text("public", encoding="utf-8")
    definition = replace(spec(project, "opencode", "opencode"), args=("{file:notes}",), may_reveal=False)
    assert (await resolve(definition, BASE, SecretCommands(BASE))).args == ("public",)
    (project / "notes").unlink()
    (project / "notes").symlink_to(outside)
    resolved = await resolve(definition, BASE, SecretCommands(BASE))
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
async def test_command_with_shell_syntax_is_a_problem_and_never_run(
    tmp_path: Path, client: str, command: str, syntax: str
) -> None:
    definition = replace(spec(tmp_path, client, client), env={"K": f"!{command}", "L": "literal"})
    [listed] = missing(definition, BASE)
    assert (listed.code, listed.file, listed.line) == (
        "server.secret_missing",
        definition.source.file,
        definition.source.line,
    )
    assert f'env.K uses shell syntax ("{syntax}")' in listed.message
    resolved = await resolve(definition, BASE, SecretCommands(BASE))
    assert resolved.env == {"L": "literal"}
    assert resolved.problems == (listed,)


@pytest.mark.parametrize("command", ["sh -c 'echo a | cat'", 'printf "%s" "a;b|c"', "printf %s a\\|b", "echo '$X ~ *'"])
async def test_quoted_shell_syntax_is_plain_text(tmp_path: Path, command: str) -> None:
    definition = replace(spec(tmp_path, "toolcrib", "toolcrib"), env={"K": f"!{command}"})
    assert missing(definition, BASE) == ()
    assert (await resolve(definition, BASE, SecretCommands(BASE))).env.keys() == {"K"}


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
    (problem,) = (await resolve(remote, BASE, SecretCommands(BASE), secrets=secrets)).problems
    assert problem.code == "server.secret_missing" and "auth.clientSecret" in problem.message
    secrets.put("APP_SECRET", "s3cret-of-the-app", project=str(tmp_path))
    resolved = await resolve(remote, BASE, SecretCommands(BASE), secrets=secrets)
    assert resolved.problems == () and resolved.auth == Auth(client_id="app", client_secret="s3cret-of-the-app")
    assert "s3cret-of-the-app" not in repr(resolved)
