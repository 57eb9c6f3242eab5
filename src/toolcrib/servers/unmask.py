"""Restores secrets in a definition that was read masked, edited and sent back."""

from toolcrib.base.masking.restore import restore_masked
from toolcrib.model.json import JsonObject


def unmasked(sent: JsonObject, shown: JsonObject, kept: JsonObject) -> JsonObject:
    """Return `sent` with every value that still equals `shown` replaced by the one `kept` in the file."""
    return restore_masked(sent, shown, kept)
