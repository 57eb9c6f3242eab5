"""`toolcrib doctor`: finds problems on this machine, each with a fix.

Must work when nothing else does: reads settings without rejecting any, and needs no home.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.options import HomeOption, JsonOption, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.doctor.finding import Finding
    from toolcrib.doctor.surroundings import Surroundings

_NEEDED = ("settings", "home", "database")
"""Checks whose errors make it impossible to start a crib."""


def doctor(
    ctx: typer.Context,
    fix: Annotated[bool, typer.Option("--fix", help="Apply fixes that are safe.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine for problems and suggest fixes. Starts every trusted server."""
    from pathlib import Path

    from toolcrib.base.settings import Environment, read_settings
    from toolcrib.cli.options import working_directory
    from toolcrib.doctor.examine import examine, repaired
    from toolcrib.doctor.finding import worst
    from toolcrib.doctor.surroundings import Surroundings

    options = common(ctx, home, as_json)
    environment = Environment.current()
    loaded = read_settings(environment, {"home": options.home})
    surroundings = Surroundings(loaded, environment, Path(working_directory() or loaded.settings.home))
    findings = examine(surroundings)
    if fix:
        findings = repaired(findings)
    if not options.as_json:
        output.note("Starting the servers to check them. Press Ctrl-C to stop.")
    findings += _check_crib(surroundings, findings)
    if options.as_json:
        output.document({"worst": worst(findings), "findings": [each.to_json() for each in findings]})
    else:
        _show(findings, fix=fix)
    if worst(findings) == "error":
        raise typer.Exit(1)


def _check_crib(surroundings: "Surroundings", before: "Sequence[Finding]") -> "list[Finding]":
    """Return the findings of the crib, if one is available."""
    from toolcrib.base.home import find_holder
    from toolcrib.cli.crib import ask as ask_crib
    from toolcrib.cli.loop import run
    from toolcrib.doctor.crib_checks import ask, of_version
    from toolcrib.doctor.finding import Finding
    from toolcrib.model.errors import ToolcribError

    if not surroundings.home.root.is_dir():
        return []
    if any(each.check in _NEEDED and each.severity == "error" and each.repaired is None for each in before):
        message = "Servers, tools, rules, tokens and the audit log were not checked, because the crib cannot start."
        return [Finding("crib", "note", message, fix="Fix the errors above, then run `toolcrib doctor` again.")]
    holder = find_holder(surroundings.home) if surroundings.home.lock_file.is_file() else None
    other = of_version(holder.version) if holder is not None else None
    try:
        return [*([other] if other else []), *run(lambda: ask_crib(surroundings.settings, ask))]
    except ToolcribError as error:
        return [Finding("crib", "error", error.message, error.code, error.hint)]


def _show(findings: "Sequence[Finding]", *, fix: bool) -> None:
    """Print the findings, worst first; passed checks on one line."""
    from toolcrib.doctor.finding import counted

    for severity in ("error", "warning", "note"):
        for each in findings:
            if each.severity == severity:
                _show_one(each)
    faulty = {each.check for each in findings if each.severity != "ok"}
    fine = sorted({each.check for each in findings} - faulty)
    output.line(f"ok       {', '.join(fine)}")
    left = [each for each in findings if each.repaired is None]
    counts = [(sum(each.severity == severity for each in left), severity) for severity in ("error", "warning", "note")]
    summary = ", ".join(counted(count, word) for count, word in counts if count)
    output.note(f"\n{summary}." if summary else "\nNo problems found.")
    if not fix and any(each.repair is not None for each in left):
        output.note("Run `toolcrib doctor --fix` to apply fixes that are safe.")


def _show_one(finding: "Finding") -> None:
    output.line(f"{finding.severity:<8} {finding.check}: {output.one_line(finding.message, 1000)}")
    if finding.evidence:
        output.line(f"         {output.one_line(finding.evidence, 500)}")
    if finding.repaired is not None:
        output.line(f"         fixed: {output.one_line(finding.repaired, 500)}")
    elif finding.fix:
        output.line(f"         fix: {output.one_line(finding.fix, 500)}")
