"""Definitions of PROTOBUF_NATIVE schemas: JSON around a ``FileDescriptorSet``.

Fields: ``fileDescriptorSet`` (base64 of the serialised set), ``rootMessageTypeName`` (full name of the message) and
``rootFileDescriptorName`` (the file of the set that declares it).
"""

from __future__ import annotations

import base64
import json

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError


def root_message_name(definition: bytes) -> str:
    """Full name of the message. Raises ValueError unless the set declares it."""
    try:
        value = json.loads(definition.decode())
        encoded, root = value["fileDescriptorSet"], value["rootMessageTypeName"]
        files = FileDescriptorSet.FromString(base64.b64decode(encoded, validate=True))
    except (ValueError, KeyError, TypeError, RecursionError, DecodeError) as error:
        raise ValueError(f"no descriptors of protobuf messages: {error}") from error
    names = {name for file in files.file for message in file.message_type for name in _names(message, file.package)}
    if root not in names:
        raise ValueError(f"the descriptors do not declare the message {root!r}")
    return str(root)


def _names(message: DescriptorProto, scope: str) -> list[str]:
    name = f"{scope}.{message.name}" if scope else message.name
    return [name, *(inner for nested in message.nested_type for inner in _names(nested, name))]
