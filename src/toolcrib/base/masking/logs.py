"""Masks secrets in log records before any handler writes them."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from toolcrib.base.masking.text import mask_text
from toolcrib.base.masking.values import KnownSecrets

_FORMATTER = logging.Formatter()


@contextmanager
def mask_logs(known: KnownSecrets) -> Generator[None]:
    """Mask known and probable secrets in everything that this process logs, for the duration of the block."""
    masking = MaskingFilter(known)
    handlers = tuple(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(masking)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(masking)


class MaskingFilter(logging.Filter):
    """Masks the message and the traceback of a record."""

    def __init__(self, known: KnownSecrets) -> None:
        super().__init__()
        self._known = known

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        masked = mask_text(message, self._known.mask)
        if masked != message:
            record.msg, record.args = masked, ()
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = mask_text(record.exc_text, self._known.mask)
        return True
