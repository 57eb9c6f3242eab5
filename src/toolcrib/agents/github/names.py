"""Validates GitHub names written by agents before they become part of a URL. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from toolcrib.model.errors import InvalidRequest

_OWNER: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class GitHubRepository:
    """A repository, as owner and name."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "GitHubRepository":
        """Parse `owner/name`; raises `github.invalid`."""
        owner, _, name = text.strip().partition("/")
        if not _OWNER.fullmatch(owner) or not _REPOSITORY.fullmatch(name) or name in (".", ".."):
            raise InvalidRequest("github.invalid", f"{text[:120]!r} is not a repository.", "Write it as `owner/name`.")
        return cls(owner, name)


def account(text: str) -> str:
    """Return the name of a user or organisation; raises `github.invalid`."""
    name = text.strip().removeprefix("@")
    if not _OWNER.fullmatch(name):
        raise InvalidRequest("github.invalid", f"{text[:120]!r} is not a user or organisation.", "Give its login name.")
    return name
