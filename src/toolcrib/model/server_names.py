"""All names of one server definition. Rules, permissions and limits apply under each of them.

An untrusted file can claim a name for a definition. Such a name may only restrict, never allow, so trusted and claimed
names are kept apart. Pure.
"""

from dataclasses import dataclass
from typing import NamedTuple


class OtherName(NamedTuple):
    """An additional name of a server, and the file that uses it."""

    name: str
    file: str


@dataclass(frozen=True, slots=True)
class ServerNames:
    """The names of a definition other than the one its server is known by here.

    `identity` is independent of the name and place of the definition; it is empty for servers without a file. `trusted`
    names come from trusted places that are in force; they count for every rule. `claimed` are all others; they count
    for deny, ask and limits, never for allow. `bound` is what remembered answers are bound to: the identity and, for a
    program that a project runs, its directory.
    """

    identity: str = ""
    trusted: tuple[OtherName, ...] = ()
    claimed: tuple[OtherName, ...] = ()
    bound: str = ""

    @property
    def others(self) -> tuple[OtherName, ...]:
        """All other names, trusted ones first."""
        return self.trusted + self.claimed

    def matching(self, text: str) -> OtherName | None:
        """Return the entry with this name, or None."""
        return next((other for other in self.others if other.name == text), None)


NO_NAMES = ServerNames()
"""Names of servers without aliases or a file."""
