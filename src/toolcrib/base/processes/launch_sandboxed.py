"""Applies a sandbox to its own process, then becomes the server: a script of its own, started without site packages.

Arguments: the native module of `nono-py`, the grants as JSON, then the server's command. Variables for the server have
the prefix `SANDBOXED_`, so that none of them (such as `LD_PRELOAD`) has an effect before the sandbox is in force.

Landlock restricts neither local sockets nor the address that a TCP connection goes to. On Linux a seccomp filter
therefore refuses local sockets and, for a server with a list of hosts, hands every `connect` to the crib, which returns
a socket that it has connected to its own proxy (`connect_guard`). The address in the server's memory decides nothing.

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

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # instructions of BPF
_ALLOW, _REFUSE, _NOTIFY = 0x7FFF0000, 0x0005000D, 0x7FC00000  # 0x0D is EACCES
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _TCP, _FAST_OPEN = 1, 2, 6, 0x20000000
_NAMES = (
    "socket", "socketpair", "bind", "listen", "connect", "sendto", "sendmsg", "sendmmsg", "seccomp", "prlimit64",
    "setpriority", "add_key", "request_key", "keyctl", "io_uring_setup", "chroot", "shmget", "shmat", "shmctl",
    "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl", "mq_open",
)  # fmt: skip
_REFUSED = _NAMES[_NAMES.index("add_key") :]
"""Keys, memory and messages that processes of the user share, and ways around the checks of paths."""
_GENERIC: "dict[str, int]" = dict(
    zip(
        _NAMES,
        (
            198, 199, 200, 201, 203, 206, 211, 269, 277, 261, 140, 217, 218, 219, 425, 51,
            194, 196, 195, 190, 193, 191, 192, 186, 189, 188, 187, 180,
        ),
        strict=True,
    )
)  # fmt: skip
_X86_64: "dict[str, int]" = dict(
    zip(
        _NAMES,
        (
            41, 53, 49, 50, 42, 44, 46, 307, 317, 302, 141, 248, 249, 250, 425, 161,
            29, 30, 31, 64, 65, 66, 220, 68, 69, 70, 71, 240,
        ),
        strict=True,
    )
)  # fmt: skip
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64),
    "aarch64": (0xC00000B7, _GENERIC),
    "riscv64": (0xC00000F3, _GENERIC),
}


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
    if sys.platform == "linux":
        _confine_linux(nono, capabilities, grants)
        return
    if grants["network"] != "all":
        capabilities.block_network()
    if grants["network"] == "hosts":
        capabilities.allow_localhost_port(grants["port"])
    nono.apply(capabilities)


def _confine_linux(nono: "Any", capabilities: "Any", grants: "Any") -> None:
    # Before the sandbox: it may not include the files of this Python.
    import ctypes  # noqa: PLC0415 only for Linux, and slow
    from _socket import SCM_RIGHTS, SOL_SOCKET, socket  # noqa: PLC0415
    from struct import pack  # noqa: PLC0415

    network = grants["network"]
    if network == "none":
        capabilities.block_network()
        nono.apply_seccomp(capabilities)  # Landlock alone filters TCP only
    elif network == "hosts" and nono.detect_abi().has_network:
        capabilities.block_network()
        nono.apply_landlock(capabilities)
    else:
        nono.apply(capabilities)
    machine, by_hosts = os.uname().machine, network == "hosts"
    program = _filter(machine, by_hosts, grants["sockets"])
    code = ctypes.create_string_buffer(b"".join(pack("HBBI", *each) for each in program))
    head = ctypes.create_string_buffer(pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    call = ctypes.CDLL(None, use_errno=True).syscall
    listener = call(_MACHINES[machine][1]["seccomp"], 1, 8 if by_hosts else 0, ctypes.byref(head))
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if by_hosts:
        connection = socket(fileno=grants["guard"])
        connection.sendmsg([b"x"], [(SOL_SOCKET, SCM_RIGHTS, pack("i", listener))])
        connection.close()
        os.close(listener)


def _filter(machine: str, by_hosts: bool, local_sockets: bool) -> "list[tuple[int, int, int, int]]":
    """Return the instructions of the seccomp filter. Raises `KeyError` for a processor that it is not written for."""
    architecture, number = _MACHINES[machine]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _REFUSE)]
    program += [(_LOAD, 0, 0, 0), (_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSE)]  # x32
    for name in _REFUSED:
        program += _rule(number[name], _REFUSE)
    for name, own in (("prlimit64", (0,)), ("setpriority", (0, 1))):  # others are of processes such as the crib
        program += _rule(number[name], _ALLOW, *((index, 0xFFFFFFFF, 0) for index in own))
        program += _rule(number[name], _REFUSE)
    if not local_sockets:
        program += _rule(number["socket"], _REFUSE, (0, 0xFFFFFFFF, _AF_UNIX))
        program += _rule(number["socketpair"], _REFUSE, (1, 0xF, _DATAGRAM))  # such a socket can connect elsewhere
    if by_hosts:
        for family in (_AF_INET, _AF_INET6):
            for protocol in (0, _TCP):
                tests = ((0, 0xFFFFFFFF, family), (1, 0xF, _STREAM), (2, 0xFFFFFFFF, protocol))
                program += _rule(number["socket"], _ALLOW, *tests)
        for family in (_AF_UNIX, _AF_NETLINK):
            program += _rule(number["socket"], _ALLOW, (0, 0xFFFFFFFF, family))
        for name in ("socket", "bind", "listen"):
            program += _rule(number[name], _REFUSE)
        for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            program += _rule(number[name], _REFUSE, (flags, _FAST_OPEN, _FAST_OPEN))
        program += _rule(number["connect"], _NOTIFY)
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _rule(number: int, action: int, *tests: "tuple[int, int, int]") -> "list[tuple[int, int, int, int]]":
    """Return the instructions for one system call. A test of an argument is its index, a mask and a value."""
    length = 2 + 3 * len(tests) + 1
    rule = [(_LOAD, 0, 0, 0), (_EQUAL, 0, length - 2, number)]
    for index, mask, value in tests:
        rule += [(_LOAD, 0, 0, 16 + 8 * index), (_AND, 0, 0, mask)]
        rule.append((_EQUAL, 0, length - len(rule) - 1, value))
    return [*rule, (_RETURN, 0, 0, action)]


def _fail(message: str) -> "NoReturn":
    sys.stderr.write(f"toolcrib: {message}\n")
    sys.stderr.flush()
    os._exit(FAILED)


if __name__ == "__main__":
    main()
