"""Describes exceptions of tools: a short text for the model, the full traceback for the log.

Must never add anything to the tool's own message.
"""

import logging
from typing import cast

from toolcrib.model.errors import ToolcribError
from toolcrib.model.tools import CallResult

logger = logging.getLogger(__name__)

_LONGEST = 4_000


def explain(error: BaseException) -> str:
    """Return an exception as one line: the message of a deliberate error, type and message of others."""
    error = single(error)
    if isinstance(error, ToolcribError):
        return error.message
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 boundary: an exception's own `__str__` may fail
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def failure(tool: str, error: BaseException) -> CallResult:
    """Return the error result of a call that raised; logs the traceback."""
    cause = single(error)
    text = explain(cause)
    if isinstance(cause, ToolcribError) and cause.hint:
        text = f"{text}\nHint: {cause.hint}"
    if isinstance(cause, ToolcribError) and cause.__cause__ is None:  # deliberate: the message is sufficient
        logger.warning("Tool %s: %s", tool, cause)
    else:
        logger.error("Tool %s failed", tool, exc_info=error)
    return CallResult.error(carriable(text[:_LONGEST]))


def single(error: BaseException) -> BaseException:
    """Return the only exception in nested exception groups."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return single(group.exceptions[0]) if len(group.exceptions) == 1 else group


def carriable(text: str) -> str:
    """Return the text as valid UTF-8: messages and file names may contain lone surrogates."""
    return text.encode(errors="replace").decode()
