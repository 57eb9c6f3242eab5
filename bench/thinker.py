"""The scripted model as a process of its own, so that what it uses is nobody else's: `python -m bench.thinker`."""

import json
import threading

from toolcrib.model.json import JsonObject
from toolcrib.scripted import ScriptedModel

CALLS = 60
ECHO = "mcp__tools__echo"
TEXT = "The quick brown fox jumps over the lazy dog."


def main() -> None:
    """Answer until ended: `hello` with a word, `calls` with so many calls one after the other."""
    call: JsonObject = {"blocks": [{"tool": ECHO, "input": {"text": TEXT}}]}
    said: JsonObject = {"blocks": [{"text": "Hello."}]}
    with ScriptedModel({"hello": [said], "calls": [*[call] * CALLS, said]}) as model:
        print(json.dumps({"event": "ready", "mcp": model.url}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
