"""A TCP proxy between a browser and a crib, whose connections a test can cut and restore."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

PIECE = 65_536


class TcpProxy:
    """Forwards TCP connections to a local port, except while it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_cut = False
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """The port on which the proxy listens."""
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        with self._lock:
            self._is_cut = True
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._port))
                self._ends |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while piece := one.recv(PIECE):
                other.sendall(piece)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._ends.discard(one)
        one.close()

    @classmethod
    @contextmanager
    def to(cls, port: int) -> "Generator[TcpProxy]":
        """Run a proxy to a port until the block ends."""
        proxy = cls(port)
        thread = threading.Thread(target=proxy._accept, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy._listener.shutdown(socket.SHUT_RDWR)
            proxy._listener.close()
            proxy.cut()
            thread.join(10)
