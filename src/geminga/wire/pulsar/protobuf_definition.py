"""Definitions of PROTOBUF_NATIVE schemas: JSON around a ``FileDescriptorSet``.

Fields: ``fileDescriptorSet`` (base64 of the serialised set), ``rootMessageTypeName`` (full name of the message) and
``rootFileDescriptorName`` (the file of the set that declares it), which says nothing that the name does not.
"""

from __future__ import annotations

import base64
import json
from typing import NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError


class ProtobufDefinition(NamedTuple):
    """What a definition declares."""

    files: FileDescriptorSet
    #: Full name of the message that the schema is of.
    root: str


def parse_protobuf(definition: bytes) -> ProtobufDefinition:
    """Raises ValueError for what is no such definition; whether the set declares the message is not looked at."""
    try:
        value = json.loads(definition.decode())
        encoded, root = value["fileDescriptorSet"], value["rootMessageTypeName"]
        return ProtobufDefinition(FileDescriptorSet.FromString(base64.b64decode(encoded, validate=True)), str(root))
    except (ValueError, KeyError, TypeError, RecursionError, DecodeError) as error:
        raise ValueError(f"no descriptors of protobuf messages: {error}") from error


def root_message_name(definition: bytes) -> str:
    """Full name of the message. Raises ValueError unless the set declares it."""
    files, root = parse_protobuf(definition)
    names = {name for file in files.file for message in file.message_type for name in _names(message, file.package)}
    if root not in names:
        raise ValueError(f"the descriptors do not declare the message {root!r}")
    return root


def root_message(definition: bytes) -> Descriptor:
    """The message, in a pool of its own. Raises ValueError where it can not be built."""
    files, root = parse_protobuf(definition)
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(root)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the descriptors of {root!r} can not be built: {error}") from error


def _names(message: DescriptorProto, scope: str) -> list[str]:
    name = f"{scope}.{message.name}" if scope else message.name
    return [name, *(inner for nested in message.nested_type for inner in _names(nested, name))]
