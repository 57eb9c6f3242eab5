"""HTTP for outgoing requests: the configuration shared by all clients.

httpx2 is the client for everything except two paths that measurably need less: calls of HTTP servers
(`upstream.http.client`) and fronts that join the crib on this machine (`web.loopback`). `guarded_client` describes what
all of them check.
"""

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.dial import Connect, Resolve, open_socket, system_addresses
from toolcrib.model.errors import ConfigError

if TYPE_CHECKING:
    import httpcore2
    import httpx2

    from toolcrib.base.network import guarded_client
else:
    httpx2 = lazy_module("httpx2")
    guarded_client = lazy_module("toolcrib.base.network.guarded_client")

# It logs the address of every request, and those of webhooks and push services allow anyone to send to them.
logging.getLogger("httpx2").setLevel(logging.WARNING)

MAX_BODY = 16 * 1024 * 1024
MAX_DOCUMENT = 1024 * 1024


@cache
def system_trust() -> ssl.SSLContext:
    """Return the context with the usual certificates. Blocking: reading them takes long."""
    return httpx2.create_ssl_context(trust_env=False)


@dataclass(frozen=True, slots=True)
class Web:
    """Configuration shared by all clients: trusted certificates, name resolution, and sockets.

    `trust` returns the certificates for the first https connection and may block. `network` opens sockets for the
    clients created here, if not those of anyio, `connect` for `upstream.http`.
    """

    trust: Callable[[], ssl.SSLContext] = field(default=system_trust, repr=False)
    resolve: Resolve = system_addresses
    network: "httpcore2.AsyncNetworkBackend | None" = None
    connect: Connect = open_socket

    async def ssl_context(self) -> ssl.SSLContext:
        """Return the context of https connections."""
        return await anyio.to_thread.run_sync(self.trust)

    def client(
        self,
        *,
        local_allowed: bool,
        headers: Mapping[str, str] | None = None,
        timeout: "httpx2.Timeout | None" = None,
        max_body: int = MAX_BODY,
    ) -> "httpx2.AsyncClient":
        """Return a guarded client. `local_allowed` if the owner's own definition contains the address."""
        return guarded_client.guarded_client(self, local_allowed, headers, timeout, max_body)

    def documents(self, *, local_allowed: bool) -> "httpx2.AsyncClient":
        """Return a client for small documents whose URL another party sent, such as metadata."""
        timeout = guarded_client.DOCUMENT_TIMEOUT
        return self.client(local_allowed=local_allowed, timeout=timeout, max_body=MAX_DOCUMENT)


async def open_web(
    environment: Mapping[str, str],
    resolve: Resolve = system_addresses,
    network: "httpcore2.AsyncNetworkBackend | None" = None,
) -> Web:
    """Return a `Web` with the certificates of `SSL_CERT_FILE` or `SSL_CERT_DIR` if one is set, else the system's.

    Raises `settings.invalid` if the named file or directory has no certificates.
    """
    file, directory = environment.get("SSL_CERT_FILE"), environment.get("SSL_CERT_DIR")
    if not file and not directory:
        return Web(system_trust, resolve, network)
    context = await anyio.to_thread.run_sync(_named_trust, file, directory)
    return Web(lambda: context, resolve, network)


def _named_trust(file: str | None, directory: str | None) -> ssl.SSLContext:
    name = "SSL_CERT_FILE" if file else "SSL_CERT_DIR"
    try:
        if directory and not file and not Path(directory).is_dir():
            raise NotADirectoryError(f"{directory} is not a directory")
        return ssl.create_default_context(cafile=file or None, capath=directory if not file else None)
    except (OSError, ValueError) as error:
        message = f"The certificates that {name} names can't be read: {error}."
        raise ConfigError("settings.invalid", message, hint=f"Correct {name}, or unset it.") from error
