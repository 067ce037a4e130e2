"""Definitions of PROTOBUF_NATIVE schemas."""

from __future__ import annotations

import pytest

from geminga.wire.pulsar.protobuf_definition import root_message, root_message_name
from support.worlds.schemas import native_definition


@pytest.mark.parametrize("root", ["p.Outer", "p.Outer.Inner"])
def test_declared_messages_are_found(root: str) -> None:
    assert root_message_name(native_definition(root)) == root
    assert root_message(native_definition(root)).full_name == root


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"7",
        native_definition("p.Other"),
        native_definition("p.Outer", b"\xff"),
        b'{"fileDescriptorSet":"?"}',
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"protobuf|declare"):
        root_message_name(data)
    with pytest.raises(ValueError, match=r"protobuf|can not be built"):
        root_message(data)
