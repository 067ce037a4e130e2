"""Markers of replicated subscriptions: Pulsar's types and fields, and what is damaged."""

from __future__ import annotations

import pytest

from geminga.model.position import Position
from geminga.wire.pulsar.metadata import split_entry
from geminga.wire.pulsar.subscription_markers import (
    SNAPSHOT,
    InCluster,
    Marker,
    Request,
    Response,
    Snapshot,
    Update,
    decode_marker,
    encode_local_snapshot,
    encode_request,
    encode_response,
    encode_update,
)

WEST = InCluster("west", Position(7, 8))
#: The position before a ledger's first entry.
EMPTY = InCluster("north", Position(3, -1))
MARKERS: list[tuple[bytes, int, list[str], Marker]] = [
    (encode_request(Request("id", "east"), 5), 10, [], Request("id", "east")),
    (encode_response(Response("id", EMPTY), "east", 5), 11, ["east"], Response("id", EMPTY)),
    (
        encode_local_snapshot(Snapshot("id", Position(1, 2), (WEST, EMPTY)), "east", 5),
        12,
        ["east"],
        Snapshot("id", Position(1, 2), (WEST, EMPTY)),
    ),
    (encode_update(Update("sub", (WEST,)), 5), 13, [], Update("sub", (WEST,))),
]


@pytest.mark.parametrize(("entry", "kind", "goes_to", "marker"), MARKERS)
def test_a_marker_is_what_it_was_and_says_where_it_goes(
    entry: bytes, kind: int, goes_to: list[str], marker: Marker
) -> None:
    metadata, offset = split_entry(entry)
    assert metadata is not None
    assert (metadata.marker_type, metadata.producer_name, metadata.publish_time) == (kind, "pulsar.marker", 5)
    assert [*metadata.replicate_to] == goes_to
    assert decode_marker(kind, entry[offset:]) == marker


def test_payloads_are_those_of_pulsar() -> None:
    entry = encode_update(Update("sub", (WEST,)), 5)
    assert entry.endswith(b"\x0a\x03sub\x12\x0c\x0a\x04west\x12\x04\x08\x07\x10\x08")


@pytest.mark.parametrize("kind", [10, 11, 12, 13, 21])
@pytest.mark.parametrize("payload", [b"", b"\xff\xff", b"\x0a\x01x"])
def test_what_is_damaged_or_lacks_something_is_none(kind: int, payload: bytes) -> None:
    found = decode_marker(kind, payload)
    # An update of no cluster is one that moves nothing.
    assert found == (Update("x", ()) if (kind, payload) == (13, b"\x0a\x01x") else None)


def test_what_is_longer_than_any_marker_is_none() -> None:
    """Subscriptions remember what they say, and whoever may publish can write them."""
    for count, is_read in ((1000, True), (5000, False)):
        others = tuple(InCluster(f"cluster {number:03}", Position(7, number)) for number in range(count))
        snapshot = Snapshot("id", Position(1, 2), others)
        entry = encode_local_snapshot(snapshot, "east", 5)
        metadata, offset = split_entry(entry)
        assert metadata is not None
        assert decode_marker(SNAPSHOT, entry[offset:]) == (snapshot if is_read else None)
