"""Message ids as texts."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import BodyError
from geminga.broker.rest.message_routes.core.message_ids import MessageRef, parse_message_id
from geminga.model.position import Position


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("3:0:-1", MessageRef(-1, Position(3, 0))),
        ("3:12:7:2", MessageRef(7, Position(3, 12), 2)),
        ("-1:-1:0", MessageRef(0, Position(-1, -1))),
        ("9223372036854775807:0:-1", MessageRef(-1, Position((1 << 63) - 1, 0))),
    ],
)
def test_id_is_read_and_written_as_pulsar_prints_it(text: str, ref: MessageRef) -> None:
    assert parse_message_id(text) == ref
    assert str(ref) == text


@pytest.mark.parametrize(
    "text",
    ["", "3:0", "3:0:-1:", "3:0:-1:-1", "-2:0:0", "9223372036854775808:0:-1", "3:0:0:0:0", "a:b:c", "٣:0:0", "x" * 99],
)
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(BodyError, match="expected one such as 3:0:-1, or 3:0:-1:2 of a batch") as caught:
        parse_message_id(text)
    assert len(caught.value.told) < 170
