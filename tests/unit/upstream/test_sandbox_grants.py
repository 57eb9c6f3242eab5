"""The grants of a sandbox profile: the project and what the server needs, never the user's home or the crib's."""

import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.model.sandbox import Sandbox, SandboxGrants
from toolcrib.model.servers import DefinitionSource, ResolvedServer, ServerSpec
from toolcrib.upstream.refusals import refusal_problem, refused_accesses
from toolcrib.upstream.sandbox_grants import SandboxDeps, grant


class Machine:
    """A user's home with a project, a crib and some programs."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = self.home / "project"
        self.crib = self.home / ".local" / "share" / "toolcrib"
        for directory in (self.project, self.crib, self.home / ".ssh", self.home / "docs", self.home / "node" / "lib"):
            directory.mkdir(parents=True)
        self.program("node/bin/npx")
        self.program(".cargo/bin/tool")
        self.path = f"{self.home}/node/bin:{self.home}/.cargo/bin"

    def program(self, name: str) -> Path:
        """Create an executable file."""
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
        return file

    def granted(
        self,
        command: str,
        *args: str,
        sandbox: Sandbox | None = None,
        project: Path | None = None,
        env: Mapping[str, str] | None = None,
        is_own: bool = False,
        cwd: Path | None = None,
    ) -> "HomeGrants":
        """Return the grants of a server of the project, or of a user's own server that runs in the project."""
        place = str(project or self.project)
        source = DefinitionSource("claude-code", "project", "mcp.json", project=place, directory=place)
        if is_own:
            source = DefinitionSource("toolcrib", "user", "mcp.json")
        spec = ServerSpec("x", "stdio", source, sandbox=sandbox or Sandbox("project"))
        resolved = ResolvedServer(command, args, env or {}, str(cwd or place))
        environment = {"HOME": str(self.home), "PATH": self.path}
        made = grant(spec, resolved, SandboxDeps(self.crib / "sandboxes", environment), "linux")
        assert made.sandbox is not None
        return HomeGrants(self.home, made.sandbox, made.env)


class HomeGrants:
    """Grants that are queried by paths in the home."""

    def __init__(self, home: Path, granted: SandboxGrants, env: Mapping[str, str]) -> None:
        self.granted = granted
        self.env = env
        self._home = home

    def reads(self, path: str) -> bool:
        """Return whether a path in the home can be read."""
        return self.granted.allows(str(self._home / path))

    def writes(self, path: str) -> bool:
        """Return whether a path in the home can be written."""
        return self.granted.allows(str(self._home / path), write=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine in a temporary directory."""
    return Machine(tmp_path.resolve())


def test_package_runner_gets_its_own_cache_and_its_installation(machine: Machine) -> None:
    npx = machine.granted("npx", "-y", "server")
    (private,) = npx.granted.create
    assert npx.writes("project/file")
    assert not npx.writes(".npm/_npx")  # other servers run packages from there
    assert npx.env["npm_config_cache"].startswith(private)
    assert npx.granted.allows(npx.env["npm_config_cache"], write=True)
    assert "npm_config_offline" not in npx.env
    assert npx.reads("node/lib/module.js")
    assert not npx.writes("node/lib/module.js")
    strict = machine.granted("uvx", "server", sandbox=Sandbox("strict"))
    assert strict.granted.allows(strict.env["UV_CACHE_DIR"], write=True)
    assert strict.env["UV_OFFLINE"] == "true"
    listed = machine.granted("uvx", "server", sandbox=Sandbox("strict", hosts=("packages.example",)))
    assert "UV_OFFLINE" not in listed.env


def test_container_engine_reads_its_settings_and_others_do_not(machine: Machine) -> None:
    machine.program("node/bin/docker")
    engine, other = machine.granted("docker", "run", "image"), machine.granted("npx", "-y", "server")
    assert [each.reads(".docker/config.json") for each in (engine, other)] == [True, False]
    assert not other.granted.sockets


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ("run image", True),
        ("run -i --rm --init -e KEY --name=x --pull never -m 1g image serve -v /:/host", True),
        ("container run -it --network none --security-opt no-new-privileges image", True),
        ("run -v {project}:/work image", True),
        ("run -v .:/work:ro --mount type=bind,src={project},dst=/two,readonly image", True),
        ("run -v /cache --mount type=tmpfs,dst=/tmp image", True),
        ("run -v {project}/sub:/work image", False),  # the server could put a link there
        ("run -v {project}/link:/work image", False),
        ("run -v {home}/docs:/work image", False),
        ("run -v {home}:/work:ro image", False),
        ("run -v /:/host image", False),
        ("run -v /run/docker.sock:/run/docker.sock image", False),
        ("run -v data-of-others:/data image", False),
        ("run --mount type=volume,src=data-of-others,dst=/data image", False),
        ("run --mount type=bind,src={project},dst=/work,bind-propagation=shared image", False),
        ("run --mount=type=bind,src={home}/docs,dst=/work image", False),
        ("run --privileged image", False),
        ("run --privileged=true image", False),
        ("run --network host image", False),
        ("run --net=container:other image", False),
        ("run --pid host image", False),
        ("run --device /dev/mem image", False),
        ("run --cap-add ALL image", False),
        ("run --security-opt seccomp=unconfined image", False),
        ("run --volumes-from other image", False),
        ("run -v/:/host image", False),
        ("run -eKEY image", False),
        ("run --unknown image", False),
        ("-H unix:///run/user/1000/bus run image", False),
        ("exec -i other serve", False),
        ("compose up", False),
        ("mcp gateway run", False),
        ("", False),
    ],
)
def test_only_containers_that_fit_the_sandbox_open_local_sockets(machine: Machine, words: str, fits: bool) -> None:
    machine.program("node/bin/docker")
    (machine.project / "sub").mkdir()
    (machine.project / "link").symlink_to(machine.home / "docs")
    arguments = words.format(project=machine.project, home=machine.home).split()
    assert machine.granted("docker", *arguments).granted.sockets is fits


@pytest.mark.parametrize(
    ("sandbox", "words", "fits"),
    [
        (Sandbox("strict"), "run image", False),
        (Sandbox("strict"), "run --network none image", True),
        (Sandbox("strict"), "run --network none -v {project}:/work image", False),
        (Sandbox("strict"), "run --network none -v {project}:/work:ro image", True),
        (Sandbox("project", hosts=("example.com",)), "run image", False),
        (Sandbox("project", network=False), "run image", False),
        (Sandbox("strict", network=True), "run image", True),
        (Sandbox("project", write=("{home}/docs",)), "run -v {home}/docs:/docs image", True),
        (Sandbox("project", read=("{home}/docs",)), "run -v {home}/docs:/docs image", False),
        (Sandbox("project", read=("{home}/docs",)), "run -v {home}/docs:/docs:ro image", True),
    ],
)
def test_container_gets_the_network_and_paths_of_the_profile_only(
    machine: Machine, sandbox: Sandbox, words: str, fits: bool
) -> None:
    machine.program("node/bin/docker")
    read, write = (tuple(each.format(home=machine.home) for each in paths) for paths in (sandbox.read, sandbox.write))
    arguments = words.format(project=machine.project, home=machine.home).split()
    chosen = replace(sandbox, read=read, write=write)
    assert machine.granted("docker", *arguments, sandbox=chosen).granted.sockets is fits


def test_owner_may_mount_own_directories_and_name_the_engine(machine: Machine) -> None:
    machine.program("node/bin/docker")
    words, env = ("run", "-v", f"{machine.home}/docs:/docs", "image"), {"DOCKER_HOST": "unix:///run/user/1000/docker"}
    assert machine.granted("docker", *words, is_own=True, env=env).granted.sockets
    assert not machine.granted("docker", "run", "-v", f"{machine.home}:/x", "image", is_own=True).granted.sockets
    assert not machine.granted("docker", *words, is_own=True, sandbox=Sandbox("strict", network=True)).granted.sockets


@pytest.mark.parametrize("name", ["DOCKER_HOST", "DOCKER_CONFIG", "LD_PRELOAD", "PATH", "HOME", "BASH_ENV", "GODEBUG"])
def test_variables_of_a_project_for_the_client_open_no_socket(machine: Machine, name: str) -> None:
    machine.program("node/bin/docker")
    env = {name: f"{machine.home}/node/bin"}
    assert not machine.granted("docker", "run", "-e", name, "image", env=env).granted.sockets
    assert machine.granted("docker", "run", "-e", "KEY", "image", env={"KEY": "x"}).granted.sockets
    assert not machine.granted("docker", "run", "image", env={"KEY": "x"}).granted.sockets  # for the client, then


def test_program_of_a_project_that_is_named_like_a_runner_opens_nothing(machine: Machine) -> None:
    machine.program("project/docker")
    machine.program("project/npx")
    (machine.home / "node" / "bin" / "docker").symlink_to(machine.project / "docker")
    for command in (f"{machine.project}/docker", "./docker", "docker"):
        server = machine.granted(command, "run", "image")
        assert not server.granted.sockets
        assert not server.reads(".docker/config.json")
    assert not machine.granted("./npx", "-y", "server").reads(".npmrc")


@pytest.mark.parametrize(
    ("runner", "place", "secret", "plain"),
    [
        ("npx", ".npmrc", "//r.example/:_authToken=npm_8fK2mQ0zLx71vTgRb3Yw", "registry=https://r.example/"),
        ("npx", ".yarnrc.yml", "npmAuthToken: 8fK2mQ0zLx71vTgRb3Yw", "npmRegistryServer: https://r.example"),
        (
            "uvx",
            ".config/pip/pip.conf",
            "[global]\nindex-url = https://anna:8fK2mQ0z@r.example/",
            "[global]\ntimeout = 9",
        ),
    ],
)
def test_package_of_others_cannot_read_secrets_in_the_settings_of_its_runner(
    machine: Machine, runner: str, place: str, secret: str, plain: str
) -> None:
    machine.program(f"node/bin/{runner}")
    file = machine.home / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(secret)
    assert not machine.granted(runner, "server").reads(place)
    assert machine.granted(runner, "server", is_own=True, cwd=machine.project).reads(place)
    file.write_text(plain)
    assert machine.granted(runner, "server").reads(place)


def test_listed_socket_opens_local_sockets(machine: Machine) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        path = machine.home / "s"
        listening.bind(os.path.relpath(path))
        listed = Sandbox("strict", write=(str(path),))
        assert machine.granted("docker", "exec", "other", sandbox=listed).granted.sockets


def test_private_files_next_to_programs_are_not_granted(machine: Machine) -> None:
    tool = machine.granted("tool")
    assert tool.reads(".cargo/bin/tool")
    assert not tool.reads(".cargo/credentials.toml")
    assert not tool.reads(".ssh/id_ed25519")
    assert not tool.reads(".local/share/toolcrib/token")


def test_paths_in_the_definition_are_granted_and_code_is_read_only(machine: Machine) -> None:
    script = machine.home / "servers" / "server.py"
    script.parent.mkdir()
    script.touch()
    program = machine.program("tools/bin/helper")
    words = (str(script), f"--root={machine.home / 'docs'}", "--run", str(program))
    server = machine.granted("python3", *words, is_own=True)
    assert server.reads("tools/bin/helper")
    assert not server.writes("tools/bin/helper")
    assert server.writes("docs/new")
    assert server.reads("servers/helper.py")
    assert not server.writes("servers/helper.py")


@pytest.mark.parametrize("named", ["home", ".", "home/.local/share/toolcrib", "home/.local/share"])
def test_homes_are_granted_only_if_the_owner_lists_them(machine: Machine, named: str) -> None:
    path = machine.home.parent / named
    server = machine.granted("tool", str(path), project=machine.home)
    assert not server.reads(".ssh/id_ed25519")
    assert not server.reads(".local/share/toolcrib/token")
    listed = machine.granted("tool", sandbox=Sandbox("project", chosen=True, read=(str(machine.home),)))
    assert listed.reads(".ssh/id_ed25519")
    assert not listed.writes(".ssh/id_ed25519")


def test_strict_profile_grants_writing_only_to_temporary_files(machine: Machine) -> None:
    server = machine.granted("npx", str(machine.home / "docs"), sandbox=Sandbox("strict"), is_own=True)
    assert server.reads("project/file")
    assert server.reads("docs/file")
    assert not any(server.writes(path) for path in ("project/file", "docs/file", ".npm/_npx"))
    assert server.granted.network == "none"
    (temporary,) = server.granted.create
    assert server.granted.allows(f"{temporary}/x", write=True)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("[Errno 13] Permission denied: '/srv/a b'", "/srv/a b"),
        ("Error: EACCES: permission denied, open '/srv/x'", "/srv/x"),
        ("open /srv/x: permission denied", "/srv/x"),
        ("cat: /srv/x: Permission denied", "/srv/x"),
        ("python3: can't open file '/srv/x.py': [Errno 13] Permission denied", "/srv/x.py"),
        ("ls: cannot open directory '/srv/a b': Permission denied", "/srv/a b"),
        ("[Errno 1] Operation not permitted: '/srv/x'", "/srv/x"),
    ],
)
def test_refused_paths_are_found_in_the_output_of_servers(text: str, target: str) -> None:
    grants = SandboxGrants(read=("/usr",), write=("/tmp",))
    assert [(each.kind, each.target) for each in refused_accesses(text, grants)] == [("read", target)]


def test_refused_socket_of_an_engine_is_reported_as_a_way_out() -> None:
    text = (
        "docker: permission denied while trying to connect to the Docker daemon socket at "
        "unix:///srv/docker.sock: Head "
        '"http://%2Fsrv%2Fdocker.sock/_ping": dial unix /srv/docker.sock: socket: permission denied'
    )
    (refused,) = refused_accesses(text, SandboxGrants())
    assert (refused.kind, refused.target) == ("write", "/srv/docker.sock")
    assert not list(refused_accesses(text, SandboxGrants(sockets=True)))
    spec = ServerSpec("x", "stdio", DefinitionSource("toolcrib", "user", "mcp.json"), sandbox=Sandbox("project"))
    problem = refusal_problem(spec, refused)
    assert "read and write every file of this machine" in problem.message
    assert "--write /srv/docker.sock" in (problem.hint or "")


def test_only_accesses_outside_the_grants_count_as_refused() -> None:
    grants = SandboxGrants(read=("/usr",), write=("/var/empty",))
    text = "Permission denied: '/var/empty/x'\nPermission denied: '/usr/x'\ngetaddrinfo EAI_AGAIN example.com"
    assert [(each.kind, each.target) for each in refused_accesses(text, grants)] == [("write", "/usr/x")]
    offline = replace(grants, network="none")
    assert [each.target for each in refused_accesses(text, offline)] == ["/usr/x", "example.com"]
    assert [each.kind for each in refused_accesses("Temporary failure in name resolution", offline)] == ["network"]


def test_node_program_can_read_its_installed_packages(machine: Machine) -> None:
    for package in ("server/cli.js", "dependency/index.js"):
        machine.program(f"tools/node_modules/{package}")
    (machine.home / "tools" / "node_modules" / ".bin").mkdir()
    command = machine.home / "tools" / "node_modules" / ".bin" / "server"
    command.symlink_to("../server/cli.js")
    started = (
        machine.granted(str(command)),
        machine.granted("node", f"{machine.home}/tools/node_modules/server/cli.js"),
    )
    for grants in started:
        assert grants.reads("tools/node_modules/dependency/index.js")
        assert not grants.writes("tools/node_modules/dependency/index.js")
        assert not grants.reads("tools/secret")


def test_caches_are_private_and_installed_browsers_are_readable(machine: Machine) -> None:
    (machine.home / ".cache" / "ms-playwright").mkdir(parents=True)
    grants = machine.granted("server")
    assert Path(grants.env["XDG_CACHE_HOME"]).is_relative_to(machine.crib / "sandboxes")
    assert grants.env["PLAYWRIGHT_BROWSERS_PATH"] == str(machine.home / ".cache" / "ms-playwright")
    assert grants.reads(".cache/ms-playwright/chromium") and not grants.writes(".cache/ms-playwright/chromium")
    assert not grants.reads(".cache/other")


def test_terminal_is_not_granted(machine: Machine) -> None:
    assert not machine.granted("server").granted.allows("/dev/ptmx")


def test_definition_of_a_project_opens_only_its_code_outside_of_the_project(machine: Machine) -> None:
    script, secret = machine.home / "servers" / "server.py", str(machine.home / ".ssh")
    script.parent.mkdir()
    script.touch()
    env = {"DATA": secret, "PYTHONPATH": f"/usr/lib:{secret}", "PATH": f"{secret}:/usr/bin", "HOME": secret}
    server = machine.granted("npx", str(script), secret, f"--root={machine.home / 'docs'}", env=env)
    assert server.reads("servers/helper.py") and server.writes("project/file")
    assert not any(server.reads(path) for path in ("docs/file", ".ssh/id_ed25519", ".ssh/.npmrc"))
    elsewhere = machine.granted("npx", str(machine.home), env={"HOME": "/nonexistent"}, is_own=True)
    assert not elsewhere.reads(".ssh/id_ed25519")


def test_project_may_run_a_server_in_another_directory_of_code_read_only(machine: Machine) -> None:
    (machine.home / "servers").mkdir()
    (machine.home / "servers" / "server.py").touch()
    server = machine.granted("npx", cwd=machine.home / "servers")
    assert server.reads("servers/helper.py") and not server.writes("servers/helper.py")
    assert not machine.granted("npx", cwd=machine.home / ".ssh").reads(".ssh/id_ed25519")


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("profile", ["project", "strict"])
def test_links_in_directories_of_the_server_open_nothing(machine: Machine, profile: str, is_own: bool) -> None:
    secret, data = machine.home / ".ssh", machine.project / "data"
    program = machine.program(".ssh/run")
    data.symlink_to(secret)
    (machine.project / "tool").symlink_to(program)
    (machine.project / "code").symlink_to(secret)
    (machine.home / "elsewhere").symlink_to(data)
    (machine.project / "npmrc-home").mkdir()
    (machine.project / "npmrc-home" / ".npmrc").symlink_to(secret / "id_ed25519")
    words = ("./data", str(data), f"--root={data}", "./data/../data", "./tool", str(machine.home / "elsewhere"))
    env = {"DATA": str(data), "PYTHONPATH": str(machine.project / "code")}
    sandbox = Sandbox("strict" if profile == "strict" else "project", True, (f"{data}/id_ed25519",), (str(data),))
    server = machine.granted("npx", *words, sandbox=sandbox, env=env, is_own=is_own)
    assert server.reads("project/file")
    assert not server.reads(".ssh/id_ed25519")
    moved = machine.granted("npx", env={"HOME": str(machine.project / "npmrc-home")})
    assert not moved.reads(".ssh/id_ed25519")


def test_links_inside_the_servers_directories_and_outside_of_them_work(machine: Machine) -> None:
    (machine.project / "current").symlink_to("releases")
    (machine.project / "releases").mkdir()
    (machine.home / "shortcut").symlink_to(machine.home / "docs")
    words = ("./current", str(machine.home / "shortcut"))
    server = machine.granted("npx", *words, is_own=True)
    assert server.writes("project/releases/x") and server.writes("docs/x")


def test_virtual_environment_of_the_project_opens_only_a_python(machine: Machine) -> None:
    python = machine.program("pythons/3.12/bin/python3")
    (python.parent.parent / "lib").mkdir()
    folder = machine.project / ".venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(python)
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    command = str(folder / "bin" / "python")
    assert machine.granted(command, "server.py").reads("pythons/3.12/lib/os.py")
    (folder / "pyvenv.cfg").write_text(f"home = {machine.home / '.ssh' / 'bin'}\n")
    assert not machine.granted(command, "server.py").reads(".ssh/id_ed25519")
    (folder / "bin" / "python").unlink()
    (machine.home / ".ssh" / "id_ed25519").touch()
    (folder / "bin" / "python").symlink_to(machine.home / ".ssh" / "id_ed25519")
    assert not machine.granted(command, "server.py").reads(".ssh/id_ed25519")


def test_process_directory_of_the_crib_is_not_granted(machine: Machine) -> None:
    granted = machine.granted("npx", "server").granted
    assert [path for path in granted.read if path.startswith(f"/proc/{os.getpid()}")] == []


def test_refused_path_is_reported_with_links_resolved(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to("/srv/secret")
    grants = SandboxGrants(read=("/usr",), write=(str(tmp_path.resolve()),))
    found = refused_accesses(f"Permission denied: '{tmp_path}/data/key'", grants)
    assert [each.target for each in found] == ["/srv/secret/key"]


def test_published_definition_opens_no_credentials(machine: Machine) -> None:
    source = DefinitionSource("toolcrib", "user", "mcp.json")
    published = {"registry": {"name": "com.example/notes", "version": "1.0.0"}}
    spec = ServerSpec("x", "stdio", source, sandbox=Sandbox("project"), extra=published)
    resolved = ResolvedServer("npx", (f"{machine.home}/docs", f"{machine.home}/.ssh"), {"A": f"{machine.home}/.ssh"})
    environment = {"HOME": str(machine.home), "PATH": machine.path}
    deps = SandboxDeps(machine.crib / "sandboxes", environment)
    made = grant(spec, resolved, deps, "linux").sandbox
    assert made is not None
    grants = HomeGrants(machine.home, made, {})
    assert grants.writes("docs/new") and not grants.reads(".ssh/id_ed25519")
    listed = grant(replace(spec, sandbox=Sandbox("project", True, write=(f"{machine.home}/.ssh",))), resolved, deps)
    assert listed.sandbox is not None and listed.sandbox.allows(f"{machine.home}/.ssh/config", write=True)
