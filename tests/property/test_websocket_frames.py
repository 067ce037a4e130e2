"""Frames of sockets: whatever comes is read or refused with a number, and what is told is read back as it was."""

from __future__ import annotations

import base64
import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.websocket.core.frames import (
    FrameError,
    ToldMessage,
    decode_command,
    decode_outgoing,
    decode_passed,
    encode_message,
)
from geminga.broker.websocket.core.window import PushWindow

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
NAMES = ("payload", "context", "key", "properties", "eventTime", "deliverAt", "sequenceId", "type", "messageId")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES) | VALUES | st.text(max_size=40))
def test_any_text_is_read_or_refused(value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    for decode in (decode_outgoing, decode_command, decode_passed):
        with suppress(FrameError):
            decode(text)


@given(st.binary(max_size=50), st.dictionaries(TEXTS, TEXTS, max_size=3), TEXTS, st.none() | TEXTS)
def test_message_is_what_its_frame_says(
    payload: bytes, properties: dict[str, str], context: str, key: str | None
) -> None:
    encoded = base64.b64encode(payload).decode()
    fields = {"payload": encoded, "properties": properties, "context": context, "key": key}
    for text in (json.dumps(fields), json.dumps({**fields, "payload": encoded.rstrip("=")}, ensure_ascii=False)):
        frame = decode_outgoing(text)
        assert (frame.payload, frame.properties, frame.context, frame.key) == (payload, properties, context, key)


@given(st.binary(max_size=50), st.dictionaries(TEXTS, TEXTS, max_size=3), st.none() | TEXTS, st.integers(0, 9))
def test_told_message_is_read_back(payload: bytes, properties: dict[str, str], key: str | None, count: int) -> None:
    found = json.loads(encode_message(ToldMessage("id", payload, properties, "now", "", count, key)))
    assert base64.b64decode(found["payload"]) == payload
    assert (found["properties"], found.get("key"), found["redeliveryCount"]) == (properties, key, count)


@given(st.integers(1, 4), st.lists(st.tuples(st.sampled_from(["sent", "passed"]), st.integers(0, 6)), max_size=40))
def test_window_is_open_while_fewer_are_out_than_it_has_room_for(most: int, steps: list[tuple[str, int]]) -> None:
    window, out = PushWindow(most), set[str]()
    for what, number in steps:
        name = str(number)
        if what == "passed":
            window.passed(name)
            out.discard(name)
        elif window.is_open:
            window.sent(name)
            out.add(name)
        assert window.is_open == (len(out) < most)
