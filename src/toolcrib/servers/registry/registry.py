"""Servers from the MCP registry: search, review and install.

A plan is what a person reviews before anything runs: the definition, who published it, its warnings, the findings of
the lint in its texts, and its sandbox. A bundle is downloaded, verified and unpacked for the plan, but not started.
Installing adds the reviewed definition to our own file.

Must never start anything, or install something other than what was reviewed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path

import anyio.to_thread
import httpx2

from toolcrib.base.network.guarded_client import get
from toolcrib.base.network.web import Web
from toolcrib.model.errors import Conflict, InvalidRequest, Unavailable
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.problems import Problem
from toolcrib.model.sandbox import Sandbox
from toolcrib.model.servers import DefinitionSource
from toolcrib.model.text import visible
from toolcrib.servers.edits import Edit
from toolcrib.servers.own_file import check_entry, check_name
from toolcrib.servers.registry.bundles import (
    LARGEST_BUNDLE,
    bundle_entry,
    bundle_inputs,
    read_manifest,
    unpack_bundle,
)
from toolcrib.servers.registry.published_server import NAME, PublishedServer, check_literals
from toolcrib.servers.registry.registry_api import LATEST, RegistryReader, open_reader
from toolcrib.servers.registry.server_json import InputValues, InstallOption, option_entry, option_fault
from toolcrib.servers.sandbox import default_sandbox
from toolcrib.servers.servers import Servers, WriteScope
from toolcrib.servers.trust import TrustQuestion, trust_question

Lint = Callable[[JsonObject], tuple[Problem, ...]]
_DOWNLOAD_SECONDS = 600.0
_DOWNLOAD_TIMEOUT = httpx2.Timeout(30, read=120)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A published server, how to run it, and the user's values. Without an option, the first that can be run."""

    name: str
    version: str = LATEST
    option: str | None = None
    local_name: str | None = None
    values: InputValues = field(default_factory=dict[str, Sequence[str]], repr=False)


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What installing a server would add, and everything to review before. `missing` are required inputs.

    `digest` covers what the publisher decides: the published document and the option. It says nothing of the user's
    values.
    """

    server: PublishedServer
    option: InstallOption
    name: str
    registry: str
    entry: JsonObject = field(repr=False)
    question: TrustQuestion
    sandbox: Sandbox
    digest: str
    findings: tuple[Problem, ...] = ()
    missing: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the shape for the API and the CLI."""
        return {
            "name": self.name,
            "registry": self.registry,
            "server": self.server.to_json(),
            "option": self.option.to_json(),
            "definition": self.entry,
            "question": self.question.to_json(),
            "sandbox": self.sandbox.to_json(),
            "digest": self.digest,
            "findings": [each.to_json() for each in self.findings],
            "missing": list(self.missing),
        }


@dataclass(frozen=True, slots=True)
class RegistryDeps:
    """What the registry needs. `lint` returns the findings in a text that a model may read."""

    address: str
    web: Web
    bundles: Path
    environment: Mapping[str, str] = field(repr=False)
    user_home: Path
    lint: Lint


class Registry:
    """The configured registry."""

    def __init__(self, servers: Servers, deps: RegistryDeps) -> None:
        self._servers = servers
        self._deps = deps
        self._reader: RegistryReader = open_reader(deps.address, deps.web)

    @property
    def address(self) -> str:
        """The URL of the registry, or the path of the snapshot."""
        return self._reader.address

    async def search(self, text: str, limit: int = 20) -> list[PublishedServer]:
        """Return the published servers that match the words of a text best."""
        return await self._reader.search(text.split(), limit)

    async def find(self, name: str, version: str = LATEST) -> PublishedServer:
        """Return a published server. Raises `registry.unknown`."""
        if NAME.fullmatch(name) is None:
            message = f"{name!r} is not the name of a published server."
            raise InvalidRequest("registry.value", message, "Names look like io.github.user/server.")
        return await self._reader.find(name, version)

    async def plan(self, request: PlanRequest) -> InstallPlan:
        """Return what installing would add. A bundle is downloaded and verified; nothing is started."""
        server = await self.find(request.name, request.version)
        if server.status == "deleted":
            raise InvalidRequest("registry.option", f"{server.name} was deleted from the registry.")
        option = _choose_option(server, request.option)
        if (fault := option_fault(option)) is not None:
            raise InvalidRequest("registry.refused", f"{server.name} was refused: {visible(fault)}.")
        check_literals(option.published, option.identifier, self._deps.environment)
        texts: JsonObject = {"description": server.description, "title": server.title}
        if option.kind == "mcpb":
            bundle = await self._bundle(option)
            manifest = read_manifest(bundle)
            config = {"server": manifest["server"], "user_config": manifest.get("user_config")}
            check_literals(config, option.identifier, self._deps.environment, expanded=True)
            inputs = {each.name: each for each in (*option.inputs, *bundle_inputs(manifest))}
            option = replace(option, inputs=tuple(inputs.values()))
            _check_inputs(option, request.values)
            entry = bundle_entry(bundle, manifest, option, request.values, self._deps.user_home)
            texts |= {"tools": manifest.get("tools"), "about": manifest.get("description")}
        else:
            _check_inputs(option, request.values)
            entry = option_entry(option, request.values)
        return self._plan(server, option, entry, request, self._deps.lint(texts))

    async def install(
        self,
        request: PlanRequest,
        *,
        shown: str | None = None,
        scope: WriteScope = "user",
        cwd: Path | None = None,
        enabled: bool = True,
        dry_run: bool = False,
    ) -> tuple[InstallPlan, Edit]:
        """Add a published server to our file. `shown` is the digest of the plan that the user reviewed.

        Raises `config.changed` if the registry publishes something else by now.
        """
        plan = await self.plan(request)
        if shown is not None and shown != plan.digest:
            message = f"{plan.server.name} is not what you reviewed: the option differs, or it was published anew."
            raise Conflict("config.changed", message)
        entry = plan.entry if enabled else plan.entry | {"enabled": False}
        return plan, await self._servers.add(plan.name, entry, scope=scope, cwd=cwd, dry_run=dry_run)

    def _plan(
        self,
        server: PublishedServer,
        option: InstallOption,
        entry: JsonObject,
        request: PlanRequest,
        findings: tuple[Problem, ...],
    ) -> InstallPlan:
        name = request.local_name or _local_name(server.name)
        check_name(name)
        origin = {"name": server.name, "version": server.version}
        entry = {**entry, "registry": origin}
        source = DefinitionSource("toolcrib", "user", f"{server.name} {server.version}, {self.address}")
        spec = replace(check_entry(name, entry), source=source)
        spec = replace(spec, sandbox=default_sandbox(spec))
        given = {key for key, values in request.values.items() if values}
        missing = [each.name for each in option.inputs if each.required and each.default is None]
        return InstallPlan(
            server,
            option,
            name,
            self.address,
            entry,
            trust_question(spec, self._deps.environment),
            spec.sandbox,
            digest([server.document, option.id]),
            findings,
            tuple(name for name in missing if name not in given),
        )

    async def _bundle(self, option: InstallOption) -> Path:
        """Return the directory of a verified bundle, downloading it unless it is there already."""
        expected = option.sha256
        if expected is not None and re.fullmatch(r"[0-9a-f]{64}", expected):
            known = self._deps.bundles / expected
            if await anyio.to_thread.run_sync(known.is_dir):
                return known
        web, url = self._deps.web, option.identifier
        try:
            local = self._reader.is_local
            async with web.client(local_allowed=local, timeout=_DOWNLOAD_TIMEOUT, max_body=LARGEST_BUNDLE) as client:
                response = await get(client, url, seconds=_DOWNLOAD_SECONDS)
        except (httpx2.HTTPError, TimeoutError, OSError) as error:
            message = f"The bundle {url} cannot be downloaded: {error or type(error).__name__}."
            raise Unavailable("registry.unavailable", message) from error
        if response.status_code != HTTPStatus.OK:
            message = f"The bundle {url} cannot be downloaded: HTTP status {response.status_code}."
            raise Unavailable("registry.unavailable", message)
        return await anyio.to_thread.run_sync(unpack_bundle, response.content, expected, self._deps.bundles)


def _choose_option(server: PublishedServer, id: str | None) -> InstallOption:
    """Return the option of this id, else the first that the crib can start or reach by itself."""
    usable = [option for option in server.options if not option.is_served and _is_supported(option)]
    if id is None and usable:
        return usable[0]
    found = next((option for option in server.options if option.id == id), None)
    if not server.options:
        message = f"{server.name} publishes no package and no remote, so there is nothing to run or contact."
        raise InvalidRequest("registry.option", message)
    if found is None:
        ids = ", ".join(option.id for option in server.options)
        raise InvalidRequest("registry.option", f"{server.name} cannot be run in this way. Its options: {ids}.")
    if not _is_supported(found):
        message = f"{server.name}: packages of the type {found.kind!r} are not supported."
        raise InvalidRequest("registry.option", message)
    return found


def _is_supported(option: InstallOption) -> bool:
    return option.kind in ("remote", "npm", "pypi", "oci", "docker", "nuget", "mcpb") or option.is_served


def _check_inputs(option: InstallOption, values: InputValues) -> None:
    known = {each.name for each in option.inputs}
    for name in values:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise InvalidRequest("registry.value", f"{option.identifier} takes no value {name!r}. It takes: {names}.")


def _local_name(published: str) -> str:
    """Return the name for our own file: the last part without words that every server has."""
    last = published.rpartition("/")[2]
    short = re.sub(r"^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-mcp|-server)$", "", last)
    return short.strip("-._") or last
