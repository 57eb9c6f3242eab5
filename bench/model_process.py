"""Runs the scripted model in its own process, so that its CPU is not counted: `python -m bench.model_process`."""

import json
import threading

from toolcrib.model.json import JsonObject
from toolcrib.testing.scripted_model.server import ScriptedModel

CALLS = 60
ECHO = "mcp__tools__echo"
TEXT = "The quick brown fox jumps over the lazy dog."


def main() -> None:
    """Serve until terminated: `hello` answers with a word, `calls` with several calls one after the other."""
    call: JsonObject = {"blocks": [{"tool": ECHO, "input": {"text": TEXT}}]}
    said: JsonObject = {"blocks": [{"text": "Hello."}]}
    with ScriptedModel({"hello": [said], "calls": [*[call] * CALLS, said]}) as model:
        print(json.dumps({"event": "ready", "mcp": model.url}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
