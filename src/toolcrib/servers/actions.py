"""Actions on a configured server: in the file that defines it, or as an overlay in our own file."""

from collections.abc import Callable
from dataclasses import dataclass

from toolcrib.servers.discover import overlay_key
from toolcrib.servers.edit.entries import ChangeText, remove_server, set_value, switch_server
from toolcrib.servers.readers.read import ConfigFile, ReadEntry


@dataclass(frozen=True, slots=True)
class Action:
    """One action: `direct` changes the file that defines the server, `overlay` changes our own file."""

    direct: Callable[[ReadEntry], ChangeText]
    overlay: Callable[[ConfigFile, ReadEntry], ChangeText]


REMOVAL = Action(
    lambda entry: remove_server(entry.place, entry.name),
    lambda own, entry: set_value(own, (*_overlay(entry), "hidden"), True),
)


def switching(enabled: bool) -> Action:
    """Return the action that enables or disables a server. Replacing the whole overlay also unhides the server."""
    return Action(
        lambda entry: switch_server(entry.place, entry.name, enabled),
        lambda own, entry: set_value(own, _overlay(entry), {"enabled": enabled}),
    )


def _overlay(entry: ReadEntry) -> tuple[str, str]:
    return "overlays", overlay_key(entry.source, entry.name)
