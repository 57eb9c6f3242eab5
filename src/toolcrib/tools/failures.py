"""What went wrong in a tool, in words for the model and, once, in full for the log.

Above: `scopes` and `source`. It must never add anything to what the tool itself said.
"""

import logging
from typing import cast

from toolcrib.errors import ToolcribError
from toolcrib.model.tools import CallResult

logger = logging.getLogger(__name__)

_LONGEST = 4_000


def explain(error: BaseException) -> str:
    """An exception in one line of words: deliberate ones speak for themselves, others by type and message."""
    error = single(error)
    if isinstance(error, ToolcribError):
        return error.message
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 boundary: an exception's own `__str__` may fail
        message = ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def failure(tool: str, error: BaseException) -> CallResult:
    """The error result of a call that raised; the log gets the traceback."""
    cause = single(error)
    text = explain(cause)
    if isinstance(cause, ToolcribError) and cause.hint:
        text = f"{text}\nHint: {cause.hint}"
    if isinstance(cause, ToolcribError) and cause.__cause__ is None:  # deliberate: the words say it all
        logger.warning("Tool %s: %s", tool, cause)
    else:
        logger.error("Tool %s failed", tool, exc_info=error)
    return CallResult.error(carriable(text[:_LONGEST]))


def single(error: BaseException) -> BaseException:
    """The one exception in the groups that task groups wrap around it."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    return single(group.exceptions[0]) if len(group.exceptions) == 1 else group


def carriable(text: str) -> str:
    """The text as UTF-8 can carry it: messages and file names may hold lone surrogates."""
    return text.encode(errors="replace").decode()
