"""Protobuf encoding of spans, by appending bytes.

Concatenated encodings of a protobuf message are the encoding of their merge. So the part that all calls of a tool have
in common is encoded once, and a call appends its ids, times and audit number. With the protobuf library, copying the
common attributes into each span would cost more than everything else that telemetry does for a call.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from toolcrib.host.telemetry.otlp.messages import SCOPE

_IDS: Final = Struct("<2s16s2s8scQcQ")
"""Fields 1 (trace_id), 2 (span_id), 7 and 8 (start and end time) of a span, each after its tag."""
_PARENT: Final = b"\x22\x08"
"""Tag and length of field 4 (parent_span_id)."""
_SEVEN_BITS: Final = 0x7F


def span_bytes(common: bytes, trace_id: bytes, id: bytes, parent: bytes, started: int, ended: int) -> bytes:
    """Return an encoded span: the common part, then its ids and its times in nanoseconds. `parent` may be empty."""
    own = _IDS.pack(b"\x0a\x10", trace_id, b"\x12\x08", id, b"\x39", started, b"\x41", ended)
    return b"".join((common, own, _PARENT, parent)) if parent else common + own


def audit_attribute(number: int) -> bytes:
    """Return the encoded attribute of an audit number, to append to a span."""
    encoded = _varint(number)
    return _AUDIT[len(encoded)] + encoded


def fields(span: Span) -> bytes:
    """Return the encoded fields of a span, to append to another."""
    return span.SerializeToString()


def trace_request(spans: Iterable[bytes], resource: Resource) -> bytes:
    """Return an export request with these encoded spans."""
    scope = ScopeSpans(scope=SCOPE).SerializeToString() + b"".join(_frame(b"\x12", span) for span in spans)
    return _frame(b"\x0a", ResourceSpans(resource=resource).SerializeToString() + _frame(b"\x12", scope))


def _frame(tag: bytes, content: bytes) -> bytes:
    """Return a field with a length."""
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    if number <= _SEVEN_BITS:
        return bytes((number,))
    encoded = bytearray()
    while number > _SEVEN_BITS:
        encoded.append(number & _SEVEN_BITS | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _before_audit(size: int) -> bytes:
    """Return what precedes an audit number of this size in its attribute: key, and tag of an integer."""
    key = KeyValue(key="toolcrib.audit.id").SerializeToString()
    return b"\x4a%c%b\x12%c\x18" % (len(key) + 3 + size, key, 1 + size)


_AUDIT: Final = tuple(map(_before_audit, range(11)))
"""By the number of bytes of an audit number."""
