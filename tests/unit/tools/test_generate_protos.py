"""Stubs of the generated classes say what is read from a message that nobody checked."""

from __future__ import annotations

from tools.generate_protos import TARGET, typed_as_read

STUB = """class CommandPing(_message.Message):
    topic: str
class KeyValue(_message.Message):
    key: str
    number: int
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[str] = ...) -> None: ...
class CommandPong(_message.Message):
    topic: str
"""


def test_texts_of_unchecked_messages_may_be_bytes_and_nothing_else_changes() -> None:
    wanted = STUB.replace("    key: str", "    key: str | bytes").replace("Container[str]", "Container[str | bytes]")
    assert typed_as_read(STUB) == wanted


def test_what_is_checked_in_says_so() -> None:
    text = (TARGET / "pulsar_api_pb2.pyi").read_text()
    assert "    partition_key: str | bytes\n" in text
    assert typed_as_read(text) == text
