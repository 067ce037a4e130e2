"""Server-sent events, and where a tail goes on."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import BodyError
from geminga.broker.rest.message_routes.core.events import beginning, event, is_behind, parse_tail_id, tail_id
from geminga.broker.rest.message_routes.core.message_ids import MessageRef
from geminga.model.position import Position

LAST = MessageRef(0, Position(3, 4), 1)


def test_event_has_one_line_of_data_whatever_is_in_it() -> None:
    assert event({"payload": "a\nb\r\n"}, event_id="3:4:-1") == b'id: 3:4:-1\ndata: {"payload":"a\\nb\\r\\n"}\n\n'
    assert event({"reason": "ä"}, kind="end") == 'event: end\ndata: {"reason":"ä"}\n\n'.encode()
    assert beginning("3:4:-1", 1000) == b"retry: 1000\nid: 3:4:-1\n\n"


def test_id_of_a_tail_has_each_partition_and_is_read_again() -> None:
    refs = [LAST, MessageRef(1, Position(-1, -1))]
    assert tail_id(refs) == "3:4:0:1,-1:-1:1"
    assert parse_tail_id(tail_id(refs), "from") == {0: refs[0], 1: refs[1]}
    for text in ("", "3:4", "3:4:0,", "3:4:0 3:4:1"):
        with pytest.raises(BodyError, match="from is"):
            parse_tail_id(text, "from")
    with pytest.raises(BodyError, match="Last-Event-ID has more than 8192 characters"):
        parse_tail_id("3:4:0," * 2000, "Last-Event-ID")


@pytest.mark.parametrize(
    ("ref", "is_new"),
    [
        (LAST, False),
        (LAST._replace(batch_index=0), False),
        (LAST._replace(batch_index=2), True),
        (MessageRef(0, Position(3, 5)), True),
        (MessageRef(0, Position(4, 0)), True),
        (MessageRef(0, Position(3, 3), 9), False),
    ],
)
def test_what_comes_behind_a_message_is_what_lies_behind_it(ref: MessageRef, is_new: bool) -> None:
    assert is_behind(ref, LAST) == is_new


def test_id_of_an_entry_stands_for_all_its_messages() -> None:
    assert not is_behind(LAST, LAST._replace(batch_index=-1))
