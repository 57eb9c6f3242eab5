"""Network namespaces: a node with its own network, connected to this machine by a cable that can be pulled.

Not a test itself.

"""

import ctypes
import json
import os
import subprocess
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx2

from cluster.nodes import ClusterNode
from toolcrib.model.json import Json

T = TypeVar("T")
_NETWORK = 0x40000000
"""CLONE_NEWNET of Linux."""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=60)


@dataclass(frozen=True)
class Namespace:
    """A network namespace. `near` is the address of this side of its cable, `far` the address of the other side."""

    name: str
    near: str
    far: str

    def cut(self) -> None:
        """Pull the cable: packets are lost in both directions."""
        _ip("link", "set", f"{self.name}n", "down")

    def heal(self) -> None:
        """Plug the cable in again."""
        _ip("link", "set", f"{self.name}n", "up")

    def run(self, work: Callable[[], T]) -> T:
        """Run a function whose sockets belong to the namespace."""

        def enter() -> T:
            libc = ctypes.CDLL(None, use_errno=True)
            with Path(f"/run/netns/{self.name}").open("rb") as file:
                assert libc.setns(file.fileno(), _NETWORK) == 0, os.strerror(ctypes.get_errno())
            return work()

        with ThreadPoolExecutor(1) as thread:  # the thread ends with the call, so no other work enters the namespace
            return thread.submit(enter).result()


@contextmanager
def network_namespace() -> Generator[Namespace]:
    """Create a namespace with its cable. Removes both at the end."""
    number = os.getpid() % 250 + 1
    space = Namespace(f"tc{number}", f"10.231.{number}.1", f"10.231.{number}.2")
    near, far = f"{space.name}n", f"{space.name}f"
    _ip("netns", "add", space.name)
    try:
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", space.name)
        _ip("address", "add", f"{space.near}/24", "dev", near)
        _ip("link", "set", near, "up")
        within = ("-n", space.name)
        _ip(*within, "address", "add", f"{space.far}/24", "dev", far)
        _ip(*within, "link", "set", far, "up")
        _ip(*within, "link", "set", "lo", "up")
        yield space
    finally:
        _ip("netns", "delete", space.name)


@contextmanager
def local_network(**machines: str) -> Generator[list[Namespace]]:
    """Create machines with these addresses, connected by a switch. Removes them at the end."""
    prefix = f"tc{os.getpid()}"
    with ExitStack() as stack:
        switch = f"{prefix}-switch"
        stack.enter_context(_empty_namespace(switch))
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        spaces: list[Namespace] = []
        for number, (name, address) in enumerate(machines.items()):
            space, port = f"{prefix}-{name}", f"port{number}"
            stack.enter_context(_empty_namespace(space))
            _ip("-n", space, "link", "add", "cable", "type", "veth", "peer", "name", port, "netns", switch)
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", space, "link", "set", "cable", "up")
            _ip("-n", switch, "link", "set", port, "master", "bridge")
            _ip("-n", switch, "link", "set", port, "up")
            spaces.append(Namespace(space, "", address))
        yield spaces


@contextmanager
def _empty_namespace(name: str) -> Generator[None]:
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        _ip("netns", "delete", name)


class NamespacedNode(ClusterNode):
    """A node in a namespace: requests use its loopback address, as the owner's do."""

    space: Namespace

    @property
    def url(self) -> str:
        """The URL of the node for its owner."""
        return str(json.loads((self.home / "run.json").read_text(encoding="utf-8"))["url"])

    def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """Send one REST request from within the namespace."""
        send = super().request
        return self.space.run(lambda: send(method, path, body, token=token, headers=headers))
