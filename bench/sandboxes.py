"""The cost of a sandbox at the start of a program. Calls are not affected."""

import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.report import Row
from toolcrib.base.processes.sandbox import sandbox_support, sandboxed_command
from toolcrib.model.sandbox import SandboxGrants

STARTS = 20
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc")


def measure_sandboxes(folder: Path) -> list[Row]:
    """Measure the CPU time of a sandboxed start beyond that of the same program alone, the best of several."""
    support, what = sandbox_support(), "sandboxed start of a server, CPU added"
    if not support.is_supported:
        return [Row(what, "ms", None, limit=50)]
    alone: list[str] = ["/bin/true"]
    variables = {"PATH": "/usr/bin:/bin"}
    grants = SandboxGrants(read=_SYSTEM, write=(str(folder),), network="none")
    words, environment = sandboxed_command(alone, variables, grants, support)
    costs = [(_cpu_ms(words, environment), _cpu_ms(alone, variables)) for _ in range(STARTS)]
    return [Row(what, "ms", min(each for each, _ in costs) - min(each for _, each in costs), limit=50)]


def _cpu_ms(command: Sequence[str], environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
