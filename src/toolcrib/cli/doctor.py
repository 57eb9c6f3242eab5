"""`toolcrib doctor`: everything that is wrong on this machine, each with its fix.

Above: `main`. Below: `doctor`, and the crib through `crib` where one can be had. It must work where nothing else does,
so it reads settings without refusing any and needs no home.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli import output
from toolcrib.cli.options import HomeOption, JsonOption, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolcrib.doctor import Finding, Ground

_NEEDED = ("settings", "home", "database")
"""Where one of these is in error, no crib can be had."""


def doctor(
    ctx: typer.Context,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired without harm.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say everything that is wrong on this machine, each with its fix. Servers that may be used are started."""
    from pathlib import Path

    from toolcrib.cli.options import working_directory
    from toolcrib.doctor import Ground, examine, repaired, worst
    from toolcrib.settings import Environment, read_settings

    options = common(ctx, home, as_json)
    environment = Environment.current()
    loaded = read_settings(environment, {"home": options.home})
    ground = Ground(loaded, environment, Path(working_directory() or loaded.settings.home))
    findings = examine(ground)
    if fix:
        findings = repaired(findings)
    findings += _asked(ground, findings)
    if options.as_json:
        output.document({"worst": worst(findings), "findings": [each.to_json() for each in findings]})
    else:
        _show(findings, fix=fix)
    if worst(findings) == "error":
        raise typer.Exit(1)


def _asked(ground: "Ground", before: "Sequence[Finding]") -> "list[Finding]":
    """What a crib has to say, if one can be had."""
    from toolcrib.cli.crib import ask as ask_crib
    from toolcrib.cli.loop import run
    from toolcrib.doctor import Finding, ask
    from toolcrib.doctor.asked import of_version
    from toolcrib.errors import ToolcribError
    from toolcrib.home import find_holder

    if not ground.home.root.is_dir():
        return []
    if any(each.check in _NEEDED and each.severity == "error" and each.repaired is None for each in before):
        message = "Servers, tools, rules, tokens and the record were not looked at: no crib can be had as it is."
        return [Finding("crib", "note", message, fix="Mend the errors above, then run `toolcrib doctor` again.")]
    holder = find_holder(ground.home) if ground.home.lock_file.is_file() else None
    other = of_version(holder.version) if holder is not None else None
    try:
        return [*([other] if other else []), *run(lambda: ask_crib(ground.settings, ask))]
    except ToolcribError as error:
        return [Finding("crib", "error", error.message, error.code, error.hint)]


def _show(findings: "Sequence[Finding]", *, fix: bool) -> None:
    """The worst first; what is in order in one line."""
    from toolcrib.doctor.finding import counted

    for severity in ("error", "warning", "note"):
        for each in findings:
            if each.severity == severity:
                _show_one(each)
    fine = sorted({each.check for each in findings if each.severity == "ok"})
    output.line(f"ok       {', '.join(fine)}")
    left = [each for each in findings if each.repaired is None]
    counts = [(sum(each.severity == severity for each in left), severity) for severity in ("error", "warning", "note")]
    told = ", ".join(counted(count, word) for count, word in counts if count)
    output.note(f"\n{told}." if told else "\nEverything is in order.")
    if not fix and any(each.repair is not None for each in left):
        output.note("Run `toolcrib doctor --fix` to repair what can be repaired without harm.")


def _show_one(finding: "Finding") -> None:
    output.line(f"{finding.severity:<8} {finding.check}: {output.one_line(finding.message, 1000)}")
    if finding.evidence:
        output.line(f"         {output.one_line(finding.evidence, 500)}")
    if finding.repaired is not None:
        output.line(f"         fixed: {output.one_line(finding.repaired, 500)}")
    elif finding.fix:
        output.line(f"         fix: {output.one_line(finding.fix, 500)}")
