"""Starts programs in a sandbox, with the library `nono-py`: Landlock and seccomp on Linux, Seatbelt on macOS.

The sandbox is applied by a small launcher in the new process, which then becomes the program: the process keeps its
pid, its pipes, its mark and its umask.

Must never report support that the system does not have.
"""

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, cast

import orjson

from toolcrib.base.home import MARKER
from toolcrib.base.processes import launch_sandboxed
from toolcrib.model.sandbox import SandboxGrants

EXTRA = "pip install 'toolcrib[sandbox]'"


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """Whether programs can be confined here. `details` is how, or why not; `fix` the next step if there is one."""

    is_supported: bool
    details: str
    fix: str | None = None
    module: str = ""


class _SupportInfo(Protocol):
    is_supported: bool
    details: str


class _Nono(Protocol):
    __file__: str

    def support_info(self) -> _SupportInfo: ...


@cache
def sandbox_support() -> SandboxSupport:
    """Return what this system supports."""
    if importlib.util.find_spec("nono_py") is None:
        return SandboxSupport(False, "The extra `sandbox` is not installed.", f"Run `{EXTRA}`.")
    try:
        nono = cast(_Nono, importlib.import_module("nono_py._nono_py"))
        info = nono.support_info()
    except Exception as error:  # noqa: BLE001 boundary: a native library of another platform or version
        return SandboxSupport(False, f"The library nono-py cannot be loaded ({type(error).__name__}: {error}).")
    return SandboxSupport(info.is_supported, info.details, module=nono.__file__)


def sandboxed_command(
    words: Sequence[str], environment: Mapping[str, str], grants: SandboxGrants, support: SandboxSupport
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that start a program in a sandbox."""
    shape = asdict(grants)
    launcher = [sys.executable, "-I", "-S", str(Path(launch_sandboxed.__file__)), support.module]
    prefixed = {f"{launch_sandboxed.PREFIX}{name}": value for name, value in environment.items()}
    marker = {MARKER: environment[MARKER]} if MARKER in environment else {}
    return [*launcher, orjson.dumps(shape).decode(), *words], {**prefixed, **marker}
