"""The first half of a crib: the catalog, the permissions and the gate, with the agents and tokens they refer to.

All parts are built in order; `open` then loads their stored state.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from toolcrib.agents.sessions.creators import Creators
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.home import sealing_key
from toolcrib.base.masking.values import ValueMasker
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.approvals.consent import Consent
from toolcrib.gate.approvals.handles import Handles
from toolcrib.gate.approvals.links import ApprovalLinks
from toolcrib.gate.audit.changes import Changes
from toolcrib.gate.catalog.catalog import Catalog, CatalogChange
from toolcrib.gate.catalog.naming import NameRow, NameTable
from toolcrib.gate.gate import Gate
from toolcrib.gate.marks import ConversationMarks
from toolcrib.gate.policy.bundles import Bundles, Projects
from toolcrib.gate.policy.permissions import Permissions, RuleBook, managed_file
from toolcrib.gate.principals import NamedTokens, Principals, SessionTokens
from toolcrib.gate.shortened_tools import ShortenedTools
from toolcrib.gate.touched_paths import HomeGuard
from toolcrib.host.context import CribContext
from toolcrib.host.file_changes import FileChangeRecorder
from toolcrib.host.names import ToolNames, keep_names
from toolcrib.model.errors import ToolcribError
from toolcrib.model.events import Event
from toolcrib.model.policy import AgentGrants
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.nodes.policy_epoch import POLICY_TOPIC, PolicyEpoch
from toolcrib.nodes.shared_counts import SharedCounts
from toolcrib.nodes.shared_results import SharedResults
from toolcrib.servers.servers import Servers
from toolcrib.servers.trust import load_trust
from toolcrib.upstream.plan import not_startable

_ANSWERED = "approvals"
"""The signal that an approval of another node was answered."""


class GateParts:
    """The gate of a crib and all that its decisions depend on. `open` opens them, and its stack closes them."""

    def __init__(self, context: CribContext, *, names: NameTable, owner_token: str) -> None:
        self._context = context
        self.share_files: Callable[[], Awaitable[None]] = _nothing
        """Stores the files that all nodes share, if they have changed."""
        store, home, feed = context.store, context.home, context.feed
        self.tokens = NamedTokens(store)
        self.session_tokens = SessionTokens()
        self.principals = Principals(owner_token, self.tokens, self.session_tokens)
        self.catalog = Catalog(names, keep_names=self._keep_names, on_change=self._publish_catalog)
        self.rules = RuleBook(on_change=self._on_rules)
        self.creators = Creators(self.tokens, self.rules.renew)
        self.changes = Changes(context.audit, self.rules.fingerprint, self._share_change if store.shared else None)
        self.file_changes = FileChangeRecorder(self.changes)
        known_names = ToolNames(self.catalog)
        bundles = Bundles(store, known_names, self.rules.renew)
        projects = Projects(store, bundles, self._is_trusted, self.rules.renew)
        self.zoo = Zoo(
            store,
            feed.publish,
            self.changes,
            renew=self.catalog.refresh,
            additions=projects.prompts,
            echo=feed.echo,
        )
        self.permissions = Permissions(
            store,
            book=self.rules,
            bundles=bundles,
            projects=projects,
            managed=managed_file(),
            settings_file=home.settings_file,
            last_rules=home.last_rules,
            names=known_names,
            of_agent=self._agent_grants,
            creator_now=self.creators.current,
            on_file=self.file_changes.record,
        )
        self.marks = ConversationMarks(store, self.permissions.flows, self.catalog)
        self.approvals = self._new_approvals(context)
        link_key = context.cluster_key("approval links") or sealing_key(home)
        self.approval_links = ApprovalLinks(link_key, context.settings.approval_address)
        self._handles = Handles(self.approvals, context.tasks)
        self.servers = _open_servers(context, self.changes)
        self.guard = HomeGuard(home.root, home.work, context.user_home)
        self.policy = PolicyEpoch(store, context.membership, self.creators.revoked)
        self.principals.look_again = self.policy.refresh
        if store.shared:
            self.permissions.limits.share(SharedCounts(store))
        self.gate = self._build_gate()

    def _build_gate(self) -> Gate:
        context = self._context
        return Gate(
            self.catalog,
            context.audit,
            default_timeout=context.settings.tool_timeout,
            rules=self.rules,
            grants=self.permissions.grants,
            limits=self.permissions.limits,
            consent=Consent(self.approvals, self._handles, self.principals.may_answer, self.changes),
            home=self.guard,
            stop_switch=context.stop_switch,
            absence=self._absence,
            marks=self.marks,
            spend=self.permissions.spend,
            shortened=ShortenedTools(context.store, self.rules.renew),
            policy=self.policy if context.store.shared else None,
            search_model=context.settings.search_model,
        )

    def _new_approvals(self, context: CribContext) -> Approvals:
        return Approvals(
            context.store,
            crib=context.id,
            publish=context.feed.publish,
            may_answer=self.principals.may_answer,
            may_remember=self.principals.may_remember,
            redact=context.audit.redactor.shown,
            mask=ValueMasker(context.secrets, certain=True).json,
            remember=self.permissions.remember,
            cluster_key=context.cluster_key("approvals"),
            alive=self._alive_nodes,
            signal=partial(context.signals.send, _ANSWERED),
        )

    async def open(self, stack: AsyncExitStack) -> None:
        """Load tokens, agents and rules, and follow their changes."""
        await self.tokens.refresh()
        await self.zoo.open()
        await self.permissions.load()
        await self.marks.load()
        await self.gate.shortened.load()
        self.tokens.watch(self.permissions.let_apps_read)
        self.tokens.listen(self._on_token_end)
        self._context.tasks.start_soon(self.permissions.follow)
        stack.callback(self._context.feed.listen(self._on_event))
        stack.callback(self._context.feed.listen(self._on_remote_event, "remote"))
        stack.push_async_callback(self.gate.interpreter.close)
        await stack.enter_async_context(self.approvals)
        self._context.tasks.start_soon(self.zoo.follow)
        self.policy.on_change(self._reload)
        stack.callback(self._context.signals.listen(self._on_signal))
        stack.callback(self._context.signals.on_poll(self.policy.on_poll))
        stack.callback(self._context.signals.on_poll(self.zoo.on_poll))
        self._context.tasks.start_soon(self.policy.follow)
        context = self._context
        if context.store.shared and context.cluster_secret is not None:
            results = self.gate.results.shared = SharedResults(context.store, context.cluster_secret, context.signals)
            context.tasks.start_soon(results.follow)

    async def _reload(self) -> None:
        """Load tokens, agents and rules again after a change on another node."""
        await self.tokens.refresh()
        await self.zoo.refresh()
        await self.permissions.reload()
        await self.gate.shortened.load()

    async def _share_change(self) -> None:
        """Store changed files for the other nodes, and have them look for the change at once."""
        await self.share_files()
        self._context.signals.send(POLICY_TOPIC)

    async def _alive_nodes(self) -> set[str]:
        return {node.id for node in await self._context.membership.alive()}

    async def _absence(self, principal: Principal, ref: ToolRef) -> ToolcribError | None:
        """Return the error for a tool whose server is disabled. `why` and `mcp list` explain other reasons."""
        discovery = await self.servers.list(Path(principal.cwd) if principal.cwd is not None else None)
        entry = discovery.find(ref.server)
        return not_startable(entry) if entry is not None and entry.state == "disabled" else None

    def _keep_names(self, rows: Sequence[NameRow]) -> None:
        self._context.tasks.start_soon(keep_names, self._context.store, self.catalog.names, rows)

    def _agent_grants(self, agent: str) -> AgentGrants | None:
        granted = self.zoo.granted(agent)
        return AgentGrants(*granted) if granted is not None else None

    def _is_trusted(self, project: str) -> bool:
        return any(record.place == project for record in load_trust(self._context.home.trust_file).records)

    def _on_event(self, event: Event) -> None:
        if event.kind == "agent_changed":
            self.rules.renew()

    def _on_signal(self, topic: str) -> None:
        if topic == POLICY_TOPIC:
            self.policy.changed_elsewhere()
        elif topic == _ANSWERED:
            self.approvals.answered_elsewhere()

    def _on_remote_event(self, event: Event) -> None:
        """Look at once for what another node has changed in the database."""
        if event.kind == "agent_changed":
            self.zoo.changed_elsewhere()
        elif event.kind == "approval_resolved":  # nodes of the previous version send no signal
            self.approvals.answered_elsewhere()

    def _on_token_end(self, token: Principal) -> None:
        self._handles.withdraw(token)
        self.rules.renew()

    def _on_rules(self) -> None:
        # Listings may have changed; subscribers compare.
        self._publish_catalog(CatalogChange(self.catalog.snapshot.version, (), (), ()))

    def _publish_catalog(self, change: CatalogChange) -> None:
        self._context.feed.publish("catalog_changed", change.to_json())


async def _nothing() -> None:
    """Do nothing: this crib shares no files."""


def _open_servers(context: CribContext, changes: Changes) -> Servers:
    home, environment, publish = context.home, context.environment, context.feed.publish
    return Servers(home, environment, context.user_home, publish, changes, context.named_secrets)
