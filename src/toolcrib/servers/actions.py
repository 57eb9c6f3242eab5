"""What can be done to a server that stands somewhere: in its own file, or by a word in ours about it."""

from collections.abc import Callable
from dataclasses import dataclass

from toolcrib.config.discover import overlay_key
from toolcrib.config.edit.entries import ChangeText, remove_server, set_value, switch_server
from toolcrib.config.readers.read import Place, ReadEntry


@dataclass(frozen=True, slots=True)
class Action:
    """`direct` changes the file the server stands in, `overlay` our own file, which is given."""

    direct: Callable[[ReadEntry], ChangeText]
    overlay: Callable[[Place, ReadEntry], ChangeText]


REMOVAL = Action(
    lambda entry: remove_server(entry.place, entry.name),
    lambda own, entry: set_value(own, (*_overlay(entry), "hidden"), True),
)


def switching(enabled: bool) -> Action:
    """Turn a server on or off. The word about it is replaced as a whole, so that a hidden one is back on the list."""
    return Action(
        lambda entry: switch_server(entry.place, entry.name, enabled),
        lambda own, entry: set_value(own, _overlay(entry), {"enabled": enabled}),
    )


def _overlay(entry: ReadEntry) -> tuple[str, str]:
    return "overlays", overlay_key(entry.source, entry.name)
