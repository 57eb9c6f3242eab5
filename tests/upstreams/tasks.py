"""A modern server that answers long calls with tasks (SEP-2663). Has the tools that the conformance suite requests.

A task ends when its time has passed and all its questions are answered. `cancelled` returns the ids of cancelled tasks.
The first argument, if any, is a file that keeps the tasks for the next process.

"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from upstreams.protocol import Message, messages, refuse, reply, text_reply

KEY = "io.modelcontextprotocol/"
TASKS = KEY + "tasks"
NAMES = (
    "greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input",
    "test_tool_with_task", "cancelled",
)  # fmt: skip
DISCOVERED: Message = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "prompts": {}, "extensions": {TASKS: {}}},
    "_meta": {KEY + "serverInfo": {"name": "tasks", "version": "1"}},
}


def text(words: str, *, is_error: bool = False) -> Message:
    """Return a result with one text."""
    return {"content": [{"type": "text", "text": words}], "isError": is_error}


def question(message: str) -> Message:
    """Return a form with two fields."""
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}, "user_name": {"type": "string"}}}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


class Task:
    """One task: when it is done, its questions, and its result."""

    def __init__(self, number: int, seconds: float, end: Message, asks: Message | None = None) -> None:
        self.id = f"upstream-{number}"
        self.done_at = time.time() + seconds
        self.asks = asks or {}
        self.end = end
        self.is_cancelled = False

    @classmethod
    def of(cls, kept: Message) -> "Task":
        """Restore a task of an earlier process."""
        task = cls(0, 0, {})
        vars(task).update(kept)
        return task

    def shape(self) -> Message:
        """Return the task as `tasks/get` shows it."""
        task: Message = {"taskId": self.id, "ttlMs": 60_000, "pollIntervalMs": 50}
        task |= {"createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z"}
        if self.is_cancelled:
            return {**task, "status": "cancelled"}
        if self.asks:
            return {**task, "status": "input_required", "inputRequests": self.asks}
        if time.time() < self.done_at:
            return {**task, "status": "working"}
        return {**task, "status": "failed" if "error" in self.end else "completed", **self.end}


class Server:
    """The state of one process."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        kept: list[Message] = json.loads(file.read_bytes()) if file is not None and file.exists() else []
        self.tasks: dict[str, Task] = {each["id"]: Task.of(each) for each in kept}

    def serve(self) -> None:
        """Answer requests until the input ends."""
        for message in messages():
            method, params = message.get("method", ""), message.get("params", {})
            if method == "server/discover":
                reply(message, DISCOVERED)
            elif method == "tools/list":
                reply(message, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]})
            elif method == "prompts/list":
                reply(message, {"prompts": [{"name": "task"}]})
            elif method == "prompts/get":  # tasks may not answer prompts
                reply(message, {"resultType": "task", "taskId": "upstream-0", "status": "working", "ttlMs": None})
            elif method == "tools/call":
                self.call(message, params, params.get("arguments", {}))
            elif method.startswith("tasks/"):
                self.handle_task(message, method, params)
            elif "id" in message:
                refuse(message)
            if self.file is not None:
                self.file.write_text(json.dumps([vars(task) for task in self.tasks.values()]), encoding="utf-8")

    def call(self, request: Message, params: Message, arguments: dict[str, Any]) -> None:
        """Run a tool."""
        seconds = float(arguments.get("seconds", 0))
        match params["name"]:
            case "greet":
                text_reply(request, f"Hello, {arguments.get('name')}!")
            case "cancelled":
                text_reply(request, " ".join(task.id for task in self.tasks.values() if task.is_cancelled))
            case "slow_compute":
                self.start(request, seconds, {"result": text(f"computed {arguments.get('label')}")})
            case "failing_job":
                self.start(request, 0.2, {"result": text("It failed.", is_error=True)})
            case "protocol_error_job":
                self.start(request, 0.2, {"error": {"code": -32603, "message": "It broke."}})
            case "confirm_delete":
                self.start(request, 0, {"result": text("deleted")}, {"confirm": question("Delete it?")})
            case "multi_input":
                asks = {"first": question("First?"), "second": question("Second?")}
                self.start(request, 0, {"result": text("both answered")}, asks)
            case _ if "inputResponses" in params:
                name = " ".join(map(str, params["inputResponses"]["user_name"]["content"].values()))
                self.start(request, 0.1, {"result": text(f"Hello, {name}!")})
            case _:
                asked: Message = {"inputRequests": {"user_name": question("Your name?")}, "requestState": "asked"}
                reply(request, {"resultType": "input_required", **asked})

    def start(self, request: Message, seconds: float, end: Message, asks: Message | None = None) -> None:
        """Answer with a task. The crib declares tasks for every client, so a call without them is refused."""
        capabilities = request["params"]["_meta"][KEY + "clientCapabilities"]
        if TASKS not in capabilities.get("extensions", {}):
            refuse(request, -32021, "Missing required client capability")
            return
        task = Task(len(self.tasks), seconds, end, asks)
        self.tasks[task.id] = task
        shape = {key: value for key, value in task.shape().items() if key not in ("result", "error", "inputRequests")}
        reply(request, {**shape, "resultType": "task", "status": "working"})

    def handle_task(self, request: Message, method: str, params: Message) -> None:
        """Answer a request about a task."""
        task = self.tasks.get(params["taskId"])
        if task is None:
            refuse(request, -32602, "Task not found")
        elif method == "tasks/get":
            reply(request, {"resultType": "complete", **task.shape()})
        elif method == "tasks/cancel":
            task.is_cancelled = True
            reply(request, {"resultType": "complete"})
        else:
            task.asks = {key: asked for key, asked in task.asks.items() if key not in params["inputResponses"]}
            reply(request, {"resultType": "complete"})


if __name__ == "__main__":
    Server(Path(sys.argv[1]) if len(sys.argv) > 1 else None).serve()
