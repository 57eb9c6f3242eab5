"""Notes for the model about arguments that a person edited before approving a call. Pure."""

from dataclasses import replace

from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult


def edited_note(arguments: str) -> str:
    """Return the note for a call whose arguments a person edited."""
    return f"A person changed the arguments before approving this call. It ran with: {arguments}"


def with_edited(result: CallResult, arguments: bytes) -> CallResult:
    """Return the result with the note appended to its content."""
    note: JsonObject = {"type": "text", "text": edited_note(arguments.decode())}
    return replace(result, content=(*result.content, note))


def without_structure(result: CallResult) -> CallResult:
    """Return the result without structured content, which runtimes show to a model instead of the text and the note."""
    return replace(result, structured_content=None, has_structured=False) if result.content else result
