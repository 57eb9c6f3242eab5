"""A wire between a browser and a crib that can be cut and mended."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

PIECE = 65_536


class Wire:
    """Carries TCP connections to a port of this machine; while it is cut there are none."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_cut = False
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """The near end."""
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """End every connection, and refuse new ones."""
        with self._lock:
            self._is_cut = True
            for end in self._ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Carry again."""
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
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
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
    def to(cls, port: int) -> "Generator[Wire]":
        """A wire for as long as the block runs."""
        wire = cls(port)
        thread = threading.Thread(target=wire._accept, daemon=True)
        thread.start()
        try:
            yield wire
        finally:
            wire._listener.shutdown(socket.SHUT_RDWR)
            wire._listener.close()
            wire.cut()
            thread.join(10)
