"""TLS servers on loopback in the place of public ones, with a resolver that tests control.

The certificates come from an authority made for the test. `Sockets` leads connections to public addresses to the local
server and records every dialled address. Nothing leaves this machine.
"""

import datetime
import socket
import ssl
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpcore2
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.types import ASGIApp

from integration.upstream.oauth.authority import listening_socket, serve_on
from toolcrib.base.network.dial import open_socket
from toolcrib.base.network.guarded_client import sockets
from toolcrib.base.network.web import Web

PUBLIC = "93.184.216.34"
OTHER = "93.184.216.35"
DAY = datetime.timedelta(days=1)


class Sockets(httpcore2.AsyncNetworkBackend):
    """Connects public addresses to local ports, and records every dialled address."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.ports = ports
        self.dialled: list[str] = []
        self._real = sockets()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        self.dialled.append(host)
        stream = await self._real.connect_tcp("127.0.0.1", self.ports.get(host, port), timeout)
        return _RelabelledStream(stream, (host, port)) if host in self.ports else stream

    async def connect(self, address: str, port: int) -> socket.socket:
        """Connect for the HTTP client of upstreams."""
        self.dialled.append(address)
        return await open_socket("127.0.0.1", self.ports.get(address, port))


class _RelabelledStream(httpcore2.AsyncNetworkStream):
    """A stream that reports the public address as its peer."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, peer: tuple[str, int]) -> None:
        self._stream = stream
        self._peer = peer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        return _RelabelledStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._peer)

    def get_extra_info(self, info: str) -> Any:
        return self._peer if info == "server_addr" else self._stream.get_extra_info(info)


@dataclass
class Resolver:
    """A resolver. Each lookup takes the next answer of the name; the last answer repeats."""

    answers: dict[str, list[Sequence[str]]]
    lookups: list[str] = field(default_factory=list[str])

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        answers = self.answers.get(host)
        if answers is None:
            raise OSError(-2, "Name or service not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]


class Certificates(NamedTuple):
    """The certificate of an authority, and a server's certificate with its key, as PEM."""

    authority: str
    server: bytes


@cache
def make_certificates(names: tuple[str, ...] = ("a.example", "b.example"), is_expired: bool = False) -> Certificates:
    """Make an authority and one certificate for these names."""
    now = datetime.datetime.now(datetime.UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    end = now - DAY if is_expired else now + DAY

    def begin(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(root).public_key(key.public_key())
        return builder.serial_number(x509.random_serial_number()).not_valid_before(now - 3 * DAY)

    root_certificate = begin(root, authority_key).not_valid_after(now + DAY)
    root_certificate = root_certificate.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root_certificate = root_certificate.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    server = begin(subject, server_key).not_valid_after(end)
    server = server.add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
    key_of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    server = server.add_extension(key_of_authority, critical=False)
    pem = serialization.Encoding.PEM
    key = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificates(
        root_certificate.sign(authority_key, hashes.SHA256()).public_bytes(pem).decode(),
        server.sign(authority_key, hashes.SHA256()).public_bytes(pem) + key,
    )


@dataclass
class Site:
    """A server at a public address, and the web client that reaches it."""

    web: Web
    resolver: Resolver
    sockets: Sockets
    port: int


@asynccontextmanager
async def public_site(app: ASGIApp, folder: Path, made: Certificates | None = None) -> AsyncGenerator[Site]:
    """Serve an application as https://a.example and https://b.example."""
    made = made or make_certificates()
    file = folder / "server.pem"
    file.write_bytes(made.server)
    context = ssl.create_default_context(cadata=made.authority)
    sock, port = listening_socket()
    opened = Sockets({PUBLIC: port, OTHER: port})
    resolver = Resolver({"a.example": [(PUBLIC,)], "b.example": [(OTHER,)]})
    async with serve_on(app, sock, file):
        yield Site(Web(lambda: context, resolver, opened, opened.connect), resolver, opened, port)
