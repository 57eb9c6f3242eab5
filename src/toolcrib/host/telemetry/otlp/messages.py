"""Shared parts of OTLP messages: the resource, the scope and attributes."""

import uuid
from collections.abc import Mapping

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from toolcrib.model.version import __version__

SCOPE = InstrumentationScope(name="toolcrib", version=__version__)


def attributes(values: Mapping[str, str | None]) -> list[KeyValue]:
    """Return the attributes that have a value."""
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in values.items() if value is not None]


def resource_of(values: Mapping[str, str]) -> Resource:
    """Return the resource of this process: the configured attributes, and an id unless they contain one."""
    instance = {"service.instance.id": str(uuid.uuid4())}
    return Resource(attributes=attributes({**instance, **values}))
