"""The team's issue tracker, stored in one JSON file."""

import json
from pathlib import Path
from typing import Any

from toolcrib.cli.demo.upstreams.wire import Arguments, DemoRefusal, DemoTools

Issue = dict[str, Any]

_ISSUE = {"issue": "Its key, such as KES-118."}


class Tracker:
    """The issues of a directory. Changes are saved immediately."""

    def __init__(self, place: Path) -> None:
        self._file = place / "issues.json"
        self._issues: list[Issue] = json.loads(self._file.read_text(encoding="utf-8"))

    def search(self, given: Arguments) -> str:
        """Return the issues that contain all words."""
        words = given["words"].lower().split()
        found = [issue for issue in self._issues if all(word in json.dumps(issue).lower() for word in words)]
        return _list_lines(found)

    def list(self, given: Arguments) -> str:
        """Return the open issues, optionally by label or milestone."""
        found = [issue for issue in self._issues if issue["state"] == "open"]
        if label := given.get("label"):
            found = [issue for issue in found if label in issue["labels"]]
        if milestone := given.get("milestone"):
            found = [issue for issue in found if issue["milestone"] == milestone]
        return _list_lines(found)

    def read(self, given: Arguments) -> str:
        """Return one issue with its comments."""
        issue = self._find(given["issue"])
        comments = [f"{each['by']}: {each['text']}" for each in issue["comments"]]
        return "\n".join([_list_lines([issue]), issue["text"], *comments])

    def comment(self, given: Arguments) -> str:
        """Add a comment."""
        issue = self._find(given["issue"])
        issue["comments"].append({"by": "agent", "text": given["text"]})
        return self._save(f"{issue['key']} has {len(issue['comments'])} comments now.")

    def label(self, given: Arguments) -> str:
        """Replace the labels of an issue."""
        issue = self._find(given["issue"])
        issue["labels"] = [label.strip() for label in given["labels"].split(",") if label.strip()]
        return self._save(f"{issue['key']} is labelled {', '.join(issue['labels']) or 'with nothing'} now.")

    def close(self, given: Arguments) -> str:
        """Close an issue."""
        issue = self._find(given["issue"])
        issue |= {"state": "closed", "closedBecause": given["reason"]}
        return self._save(f"{issue['key']} is closed now.")

    def _find(self, key: str) -> Issue:
        found = next((issue for issue in self._issues if issue["key"] == key), None)
        if found is None:
            raise DemoRefusal(f"Issue {key} does not exist.")
        return found

    def _save(self, text: str) -> str:
        self._file.write_text(json.dumps(self._issues, indent=2, ensure_ascii=False), encoding="utf-8")
        return text


def tracker(place: Path) -> list[DemoTools]:
    """Return the tools of the tracker."""
    issues = Tracker(place)
    return [
        DemoTools(
            "search_issues",
            "Search all issues, open and closed. Use it before you report anything: it may be known.",
            issues.search,
            {"words": "Words that all have to occur."},
            read_only=True,
        ),
        DemoTools(
            "list_issues",
            "List open issues.",
            issues.list,
            {"label": "Only those with this label.", "milestone": "Only those of this milestone, such as 4.2."},
            optional=frozenset({"label", "milestone"}),
            read_only=True,
        ),
        DemoTools("get_issue", "Read one issue with its comments.", issues.read, _ISSUE, read_only=True),
        DemoTools(
            "add_comment", "Comment on an issue.", issues.comment, {**_ISSUE, "text": "The comment, in Markdown."}
        ),
        DemoTools(
            "label_issue",
            "Put labels on an issue, in place of those it has.",
            issues.label,
            {**_ISSUE, "labels": "The labels, with commas between them."},
        ),
        DemoTools(
            "close_issue",
            "Close an issue. Notifies its reporter.",
            issues.close,
            {**_ISSUE, "reason": "Why it is done, in one sentence."},
        ),
    ]


def _list_lines(issues: list[Issue]) -> str:
    lines = [
        f"{issue['key']} [{issue['state']}] {issue['title']} "
        f"({', '.join(issue['labels'])}; {issue['milestone']}; {issue['assignee'] or 'unassigned'})"
        for issue in issues
    ]
    return "\n".join(lines) or "There is none."
