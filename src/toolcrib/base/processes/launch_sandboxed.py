"""Applies a sandbox to its own process, then becomes the server: a script of its own, started without site packages.

Arguments: the native module of `nono-py`, the grants as JSON, then the server's command. Variables for the server have
the prefix `SANDBOXED_`, so that none of them (such as `LD_PRELOAD`) has an effect before the sandbox is in force.

It imports little, because its start is part of the start of every server. Must never run the command without a sandbox.
"""

import _imp
import json
import os
import sys
from types import SimpleNamespace

TYPE_CHECKING = False  # `typing` takes longer to import than everything else here
if TYPE_CHECKING:
    from typing import Any, NoReturn

PREFIX = "SANDBOXED_"
FAILED = 126


def main() -> None:
    """Apply the sandbox and run the command. Exits with 126 if either fails."""
    module, grants, command = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
    environment = {name[len(PREFIX) :]: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    try:
        _confine(_load(module), grants)
    except Exception as error:  # boundary: whatever happens, the command does not run
        _fail(f"the sandbox could not be applied: {error}")
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        _fail(f"{command[0]}: {error.strerror}")


def _load(file: str) -> "Any":
    """Return the native module. `import` would also load what only its Python part needs."""
    spec = SimpleNamespace(name="nono_py._nono_py", origin=file)
    module = _imp.create_dynamic(spec)  # pyright: ignore[reportArgumentType] a name and an origin are all it reads
    _imp.exec_dynamic(module)
    return module


def _confine(nono: "Any", grants: "Any") -> None:
    for path in grants["create"]:
        os.makedirs(path, mode=0o700, exist_ok=True)
    capabilities = nono.CapabilitySet()
    modes = (("read", nono.AccessMode.READ), ("write", nono.AccessMode.READ_WRITE))
    for path, mode in ((path, mode) for key, mode in modes for path in grants[key]):
        try:
            (capabilities.allow_path if os.path.isdir(path) else capabilities.allow_file)(path, mode)
        except (OSError, ValueError):
            continue  # it does not exist, so there is nothing to grant
    if grants["network"]:
        nono.apply(capabilities)
        return
    capabilities.block_network()
    # Landlock alone filters TCP only.
    (nono.apply_seccomp if sys.platform == "linux" else nono.apply)(capabilities)


def _fail(message: str) -> "NoReturn":
    sys.stderr.write(f"toolcrib: {message}\n")
    sys.stderr.flush()
    os._exit(FAILED)


if __name__ == "__main__":
    main()
