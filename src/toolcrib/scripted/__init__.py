"""The scripted model: an Anthropic-compatible Messages API on loopback that says what scripts tell it to.

Its replies are a pure function of the request. Real coding agents run against it without network, key or cost: in
tests, and in demonstrations.

Above: `testing`, `demo`. Below: `model`, `errors`; it knows nothing of cribs.
"""

from toolcrib.scripted.reply import Place, Reply, locate, reply
from toolcrib.scripted.script import ReadScripts, Script, Scripts, Step, read_scripts
from toolcrib.scripted.server import Request, ScriptedModel
from toolcrib.scripted.stream import StreamEvent, stream_events
from toolcrib.scripted.variables import NEEDED, claude_variables

__all__ = [
    "NEEDED",
    "Place",
    "ReadScripts",
    "Reply",
    "Request",
    "Script",
    "ScriptedModel",
    "Scripts",
    "Step",
    "StreamEvent",
    "claude_variables",
    "locate",
    "read_scripts",
    "reply",
    "stream_events",
]
