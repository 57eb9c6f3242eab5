"""Actions on a configured server: in the file that defines it, or as an overlay in our own file."""

from collections.abc import Callable
from dataclasses import dataclass

from toolcrib.model.json import Json
from toolcrib.model.sandbox import Sandbox
from toolcrib.servers.discover import overlay_key
from toolcrib.servers.edit.entries import ChangeText, remove_server, set_value, switch_server
from toolcrib.servers.edits import together
from toolcrib.servers.readers.read import ConfigFile, ReadEntry
from toolcrib.servers.sandbox import stored_sandbox


@dataclass(frozen=True, slots=True)
class Action:
    """One action: `direct` changes the file that defines the server, if it may; `overlay` changes our own file."""

    direct: Callable[[ReadEntry], ChangeText] | None
    overlay: Callable[[ConfigFile, ReadEntry], ChangeText]


REMOVAL = Action(
    lambda entry: remove_server(entry.place, entry.name),
    lambda own, entry: set_value(own, (*_overlay(entry), "hidden"), True),
)


def switching(enabled: bool) -> Action:
    """Return the action that enables or disables a server. It also unhides the server."""

    def overlay(own: ConfigFile, entry: ReadEntry) -> ChangeText:
        path = _overlay(entry)
        values: tuple[tuple[str, Json], ...] = (("enabled", enabled), ("hidden", None))
        return together(set_value(own, (*path, key), value) for key, value in values)

    return Action(lambda entry: switch_server(entry.place, entry.name, enabled), overlay)


def sandboxing(sandbox: Sandbox) -> Action:
    """Return the action that chooses the sandbox of a server. It never changes the file of an app or a project."""

    def overlay(own: ConfigFile, entry: ReadEntry) -> ChangeText:
        assert entry.spec is not None
        return set_value(own, (*_overlay(entry), "sandbox"), stored_sandbox(entry.spec, sandbox))

    return Action(None, overlay)


def _overlay(entry: ReadEntry) -> tuple[str, str]:
    return "overlays", overlay_key(entry.source, entry.name)
