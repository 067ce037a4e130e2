"""Definitions of schemas for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2

from geminga.broker.schema.core.compatibility import obstacles, obstacles_for_consumer
from geminga.broker.schema.core.strategy import Strategy
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType


def why_incompatible(new: SchemaInfo, existing: Sequence[SchemaInfo], strategy: Strategy) -> str:
    """The first obstacle; empty: ``new`` may become a version beside ``existing``."""
    return next(filter(None, obstacles(new, existing, strategy)), "")


def why_unfit_for_consumer(new: SchemaInfo, existing: Sequence[SchemaInfo], strategy: Strategy) -> str:
    """The first obstacle; empty: a consumer with ``new`` may read a topic with the schemas ``existing``."""
    return next(filter(None, obstacles_for_consumer(new, existing, strategy)), "")


def native_definition(root: str, files: bytes | None = None) -> bytes:
    """Of the message ``p.Outer`` or ``p.Outer.Inner``."""
    nested = descriptor_pb2.DescriptorProto(name="Inner")
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="p")
    file.message_type.add(name="Outer").nested_type.append(nested)
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString() if files is None else files
    encoded = base64.b64encode(data).decode()
    return json.dumps(
        {"fileDescriptorSet": encoded, "rootMessageTypeName": root, "rootFileDescriptorName": "f.proto"}
    ).encode()


def record_info(*fields: Any, kind: SchemaType = SchemaType.AVRO, name: str = "R") -> SchemaInfo:
    """A record with these fields."""
    document = {"type": "record", "name": name, "fields": list(fields)}
    return SchemaInfo("", kind, json.dumps(document).encode())


#: Fields.
A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int"}
B_OPTIONAL = {"name": "b", "type": "int", "default": 0}
C_OPTIONAL = {"name": "c", "type": "int", "default": 0}
