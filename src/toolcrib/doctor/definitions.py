"""Checks the files of apps: unreadable files, invalid definitions, missing trust.

Must never start a server or resolve a value. Of a variable, only its existence is checked.
"""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from toolcrib.doctor.finding import Finding, Severity, counted, of_problem
from toolcrib.doctor.surroundings import Surroundings
from toolcrib.model.errors import ConfigError
from toolcrib.model.servers import Discovery, ServerEntry
from toolcrib.servers.discover import discover
from toolcrib.servers.trust import TrustBook, load_trust

_HARMLESS = frozenset(
    {"config.note", "config.empty", "server.own_crib", "server.built_in", "server.auto_approve", "server.field_unknown"}
)
_INSTALL = {
    "npx": "Install Node.js, which includes `npx`.",
    "node": "Install Node.js.",
    "uvx": "Install uv, which includes `uvx`.",
    "docker": "Install Docker.",
}


def check_definitions(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that every file with servers can be read and every server in it can be used."""
    book, unreadable = _trust(surroundings)
    yield from unreadable
    found = _discover(surroundings, book)
    findings = [
        *_files(found, surroundings),
        *(each for server in found.servers for each in _server(server, surroundings)),
    ]
    yield from findings
    if not any(each.severity in ("warning", "error") for each in findings):
        message = f"{counted(len(found.servers), 'server')} in {counted(len(found.files), 'file')}, all readable."
        yield Finding("definitions", "ok", message)
    yield from _find_untrusted(found)


def _discover(surroundings: Surroundings, book: TrustBook) -> Discovery:
    return discover(
        surroundings.environment,
        surroundings.cwd,
        home=surroundings.user_home,
        crib=surroundings.home.root,
        trusted=partial(book.covers, environment=surroundings.environment),
    )


def _trust(surroundings: Surroundings) -> tuple[TrustBook, list[Finding]]:
    file = surroundings.home.trust_file
    try:
        return load_trust(file), []
    except ConfigError as error:
        return TrustBook(), [Finding("trust", "error", error.message, str(file), f"mv {file} {file}.broken")]


def _files(found: Discovery, surroundings: Surroundings) -> Iterator[Finding]:
    for problem in found.problems:
        own = problem.file == str(surroundings.home.mcp_json)
        severity: Severity = "note" if problem.code in _HARMLESS else "error" if own else "warning"
        yield of_problem("definitions", severity, problem)


def _server(server: ServerEntry, surroundings: Surroundings) -> Iterator[Finding]:
    for problem in server.problems:
        if problem.code == "sandbox.unsupported":
            continue  # `check_sandbox` reports it
        grave = problem.code in (
            "server.variable_missing",
            "server.secret_missing",
            "server.invalid",
            "server.misplaced",
        )
        severity: Severity = "warning" if grave and server.shadowed_by is None else "note"
        yield of_problem("definitions", severity, problem)
    spec = server.spec
    if spec is None or spec.command is None or not server.enabled or server.shadowed_by is not None:
        return
    if "$" in spec.command or "{" in spec.command or _runs(spec.command, spec.cwd, surroundings.path):
        return
    message = f'Server "{server.name}" starts {spec.command}, which is not on the PATH.'
    where = f"{server.source.file}:{server.source.line}" if server.source.line else server.source.file
    yield Finding("definitions", "warning", message, where, _INSTALL.get(spec.command, f"Install {spec.command}."))


def check_sandbox(surroundings: Surroundings) -> Iterator[Finding]:
    """Check that servers can be confined on this system, and which are not."""
    support, tracer = surroundings.sandbox(), surroundings.tracer
    found = _discover(surroundings, TrustBook())
    servers = [each for each in found.servers if each.spec is not None and each.spec.type == "stdio" and each.enabled]
    confined = [each for each in servers if each.sandbox.is_confined]
    if support.is_supported:
        yield Finding("sandbox", "ok", "Stdio servers can run in a sandbox.", support.details)
    else:
        message = "Stdio servers cannot run in a sandbox: a project's servers start without one."
        exposed = ", ".join(each.alias for each in confined if not each.sandbox.chosen)[:500]
        evidence = f"{support.details} {exposed}".strip()
        fix = support.fix or "Use a Linux kernel with Landlock (5.13 or newer), or trust no server of a project."
        yield Finding("sandbox", "warning" if exposed else "note", message, evidence, fix)
        for each in confined:
            if each.sandbox.chosen:
                yield _not_started(each, support.details, support.fix)
    for each in servers:
        if each.sandbox.profile == "learn" and tracer().program is None:
            yield _not_started(each, tracer().details, tracer().fix)
    unconfined = [each.alias for each in servers if each.sandbox.profile == "off"]
    if unconfined and support.is_supported:
        message = f"{counted(len(unconfined), 'stdio server')} without a sandbox can read and change what you can."
        fix = f"toolcrib mcp sandbox {unconfined[0]} --profile project"
        yield Finding("sandbox", "note", message, ", ".join(unconfined)[:500], fix)


def _not_started(server: ServerEntry, details: str, fix: str | None) -> Finding:
    message = f'Server "{server.name}" does not start: its profile {server.sandbox.profile} cannot be enforced here.'
    return Finding("sandbox", "warning", message, details, fix or f"toolcrib mcp sandbox {server.alias} --profile off")


def _runs(command: str, cwd: str | None, path: str) -> bool:
    if os.sep in command:
        return (Path(cwd) / command if cwd else Path(command)).is_file()
    return shutil.which(command, path=path) is not None


def _find_untrusted(found: Discovery) -> Iterator[Finding]:
    waiting = [server for server in found.servers if server.state == "untrusted"]
    if waiting:
        names = ", ".join(server.alias for server in waiting)
        message = f"{counted(len(waiting), 'server')} not trusted yet, so not started."
        yield Finding("trust", "note", message, names[:500], f"toolcrib mcp trust {waiting[0].alias}")
