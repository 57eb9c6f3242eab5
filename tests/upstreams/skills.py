"""A modern server that offers the skills in a directory, the first argument, which it reads again for every list.

Skills below `unlisted` are not listed.

"""

import hashlib
import json
import sys
from pathlib import Path

from upstreams.protocol import Message, messages, refuse, reply

KEY = "io.modelcontextprotocol/"
MARKDOWN = "text/markdown"
DISCOVERED: Message = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"resources": {}, "extensions": {KEY + "skills": {"directoryRead": True}}},
    "_meta": {KEY + "serverInfo": {"name": "skills", "version": "1"}},
}


def skills_in(folder: Path) -> list[Path]:
    """Return the listed directories with a `SKILL.md`."""
    return sorted(file.parent for file in folder.rglob("SKILL.md") if folder / "unlisted" not in file.parents)


def files_of(skill: Path, folder: Path) -> list[Message]:
    """Return the manifest of a skill."""
    listed: list[Message] = []
    for file in sorted(path for path in skill.rglob("*") if path.is_file()):
        raw = file.read_bytes()
        uri = f"skill://{file.relative_to(folder).as_posix()}"
        listed.append({"uri": uri, "digest": f"sha256:{hashlib.sha256(raw).hexdigest()}", "size": len(raw)})
    return listed


def entry_of(skill: Path, folder: Path) -> Message:
    """Return the entry of a skill. Each front matter field must be one line."""
    head = (skill / "SKILL.md").read_text(encoding="utf-8").split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    uri = f"skill://{skill.relative_to(folder).as_posix()}/SKILL.md"
    return {"uri": uri, "frontmatter": fields, "resources": files_of(skill, folder)}


def serve(folder: Path) -> None:
    """Answer requests until the input ends."""
    for request in messages():
        match request.get("method"):
            case "server/discover":
                reply(request, DISCOVERED)
            case "tools/list":
                reply(request, {"tools": []})
            case "resources/templates/list":
                reply(request, {"resourceTemplates": []})
            case "resources/list":
                entries = [entry_of(skill, folder) for skill in skills_in(folder)]
                listed = [{**entry["frontmatter"], "uri": entry["uri"], "mimeType": MARKDOWN} for entry in entries]
                reply(request, {"resources": listed})
            case "skills/list":
                reply(request, {"skills": [entry_of(skill, folder) for skill in skills_in(folder)]})
            case "skills/get" if (folder / request["params"]["uri"].removeprefix("skill://")).is_file():
                skill = (folder / request["params"]["uri"].removeprefix("skill://")).parent
                reply(request, {"skill": entry_of(skill, folder)})
            case "resources/read":
                uri: str = request["params"]["uri"]
                file = folder / uri.removeprefix("skill://")
                reply(
                    request,
                    {"contents": [{"uri": uri, "mimeType": MARKDOWN, "text": file.read_text(encoding="utf-8")}]},
                )
            case _ if "id" in request:
                refuse(request, message=json.dumps(request.get("method")))
            case _:
                pass


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
