"""The operations agents can perform on GitHub, one method each: reads return short shapes.

Must never write to a repository whose owner is not allowed.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from toolcrib.agents.github.api import Api
from toolcrib.model.errors import Denied, InvalidRequest, ToolcribError
from toolcrib.model.json import Json, JsonObject, is_array, is_object

State = Literal["open", "closed", "all"]
ReviewEvent = Literal["APPROVE", "REQUEST_CHANGES", "COMMENT"]

LONGEST_DIFF: Final = 100_000
LONGEST_EXCERPT: Final = 500


@dataclass(frozen=True, slots=True)
class Opening:
    """An issue or pull request to be opened."""

    title: str
    body: str
    labels: tuple[str, ...] = ()
    type: str | None = None


_OWNER: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,98}[A-Za-z0-9_])?")
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class GitHubRepository:
    """A repository, as owner and name. Both are validated before they become part of a URL."""

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


class GitHub:
    """GitHub as the owner's token sees it. Only repositories of `owners` are writable; None allows all.

    All methods raise errors whose codes begin with `github.`.
    """

    def __init__(self, api: Api, *, label: str | None, owners: Collection[str] | None) -> None:
        self._api = api
        self._label = label
        self._owners = frozenset(owner.lower() for owner in owners) if owners is not None else None

    async def star(self, repo: str) -> GitHubRepository:
        """Star a repository."""
        return await self._change_star("PUT", repo)

    async def unstar(self, repo: str) -> GitHubRepository:
        """Remove the star."""
        return await self._change_star("DELETE", repo)

    async def follow(self, username: str) -> str:
        """Follow a user."""
        name = self._writable(account(username))
        await self._api.send("PUT", f"user/following/{name}")
        return name

    async def fork(self, repo: str, organisation: str | None = None) -> JsonObject:
        """Fork a repository to the token's own account or to an organisation."""
        source = self._target(repo)
        body = {"organization": self._writable(account(organisation))} if organisation is not None else {}
        return _repository(await self._api.send("POST", f"repos/{source}/forks", body))

    async def repository(self, repo: str) -> JsonObject:
        """Return a repository's metadata."""
        return _repository(await self._api.get(f"repos/{GitHubRepository.parse(repo)}"))

    async def pulls(self, repo: str, state: State, limit: int) -> list[JsonObject]:
        """Return pull requests, newest first."""
        found = await self._api.pages(f"repos/{GitHubRepository.parse(repo)}/pulls", {"state": state}, limit)
        return [_pull(each) for each in found]

    async def issues(self, repo: str, state: State, limit: int) -> list[JsonObject]:
        """Return issues, newest first, without the pull requests that GitHub lists among them."""
        path = f"repos/{GitHubRepository.parse(repo)}/issues"
        found = await self._api.pages(path, {"state": state}, limit, without="pull_request")
        return [_issue(each) for each in found]

    async def diff(self, repo: str, number: int) -> tuple[str, bool]:
        """Return the diff of a pull request, and whether it was truncated."""
        return await self._api.diff(f"repos/{GitHubRepository.parse(repo)}/pulls/{number}", LONGEST_DIFF)

    async def open_pull(self, repo: str, opening: Opening, head: str, base: str | None) -> JsonObject:
        """Open a pull request, by default into the default branch."""
        target = self._target(repo)
        into = base or _text((await self._api.get(f"repos/{target}")).get("default_branch")) or "main"
        body = {"title": opening.title, "body": opening.body, "head": head, "base": into}
        pull = _pull(await self._api.send("POST", f"repos/{target}/pulls", body))
        return await self._add_label(target, pull)

    async def open_issue(self, repo: str, opening: Opening) -> JsonObject:
        """Open an issue."""
        target = self._target(repo)
        labels = list(dict.fromkeys([*opening.labels, *([self._label] if self._label else [])]))
        body: JsonObject = {"title": opening.title, "body": opening.body, "labels": labels}
        if opening.type is not None:
            body["type"] = opening.type
        return _issue(await self._api.send("POST", f"repos/{target}/issues", body))

    async def review(self, repo: str, number: int, event: ReviewEvent, body: str) -> JsonObject:
        """Review a pull request."""
        path = f"repos/{self._target(repo)}/pulls/{number}/reviews"
        answer = await self._api.send("POST", path, {"event": event, "body": body})
        return {"state": _text(answer.get("state")), "url": _text(answer.get("html_url"))}

    async def comment(self, repo: str, number: int, body: str) -> JsonObject:
        """Comment on a pull request."""
        answer = await self._api.send("POST", f"repos/{self._target(repo)}/issues/{number}/comments", {"body": body})
        return {"url": _text(answer.get("html_url"))}

    async def _change_star(self, method: str, repo: str) -> GitHubRepository:
        target = self._target(repo)
        await self._api.send(method, f"user/starred/{target}")
        return target

    async def _add_label(self, target: GitHubRepository, pull: JsonObject) -> JsonObject:
        """Add the label to a pull request. The pull request already exists, so a failure becomes a notice."""
        if not self._label:
            return pull
        path = f"repos/{target}/issues/{pull['number']}/labels"
        try:
            await self._api.send("POST", path, {"labels": [self._label]})
        except ToolcribError as error:
            return {**pull, "notice": f"Could not add the label {self._label!r}: {error.message}"}
        return {**pull, "labels": list(dict.fromkeys([*pull["labels"], self._label]))}

    def _target(self, repo: str) -> GitHubRepository:
        """Return the repository if it is writable; raises `github.owner`."""
        target = GitHubRepository.parse(repo)
        self._writable(target.owner)
        return target

    def _writable(self, owner: str) -> str:
        if self._owners is not None and owner.lower() not in self._owners:
            allowed = ", ".join(sorted(self._owners)) or "nobody's"
            raise Denied("github.owner", f"Writing to {owner}'s repositories is not allowed; allowed: {allowed}.")
        return owner


def _repository(raw: Mapping[str, Json]) -> JsonObject:
    licence: Json = raw.get("license")
    return {
        "fullName": _text(raw.get("full_name")),
        "description": _text(raw.get("description"))[:LONGEST_EXCERPT],
        "url": _text(raw.get("html_url")),
        "defaultBranch": _text(raw.get("default_branch")),
        "language": _text(raw.get("language")),
        "license": _text(licence.get("spdx_id")) if is_object(licence) else "",
        "topics": [topic for topic in _items(raw.get("topics")) if isinstance(topic, str)],
        "stars": _number(raw.get("stargazers_count")),
        "forks": _number(raw.get("forks_count")),
        "openIssues": _number(raw.get("open_issues_count")),
        "isPrivate": raw.get("private") is True,
        "isFork": raw.get("fork") is True,
        "isArchived": raw.get("archived") is True,
        "pushedAt": _text(raw.get("pushed_at")),
    }


def _issue(raw: Mapping[str, Json]) -> JsonObject:
    labels = (each.get("name") if is_object(each) else each for each in _items(raw.get("labels")))
    return {
        "number": _number(raw.get("number")),
        "title": _text(raw.get("title")),
        "state": _text(raw.get("state")),
        "author": _member(raw, "user", "login"),
        "labels": [label for label in labels if isinstance(label, str)],
        "comments": _number(raw.get("comments")),
        "createdAt": _text(raw.get("created_at")),
        "updatedAt": _text(raw.get("updated_at")),
        "url": _text(raw.get("html_url")),
        "excerpt": _text(raw.get("body"))[:LONGEST_EXCERPT],
    }


def _pull(raw: Mapping[str, Json]) -> JsonObject:
    return {
        **_issue(raw),
        "isDraft": raw.get("draft") is True,
        "head": _member(raw, "head", "label") or _member(raw, "head", "ref"),
        "base": _member(raw, "base", "ref"),
    }


def _member(raw: Mapping[str, Json], name: str, inner: str) -> str:
    value: Json = raw.get(name)
    return _text(value.get(inner)) if is_object(value) else ""


def _items(value: Json) -> list[Json]:
    return list(value) if is_array(value) else []


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
