"""What of an entry goes to another cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.dedup_source import number_of, source_of
from geminga.broker.geo.core.copying import Copy, UnreadableError, copy_of
from geminga.model.position import Position
from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import transaction_marker
from geminga.wire.pulsar.metadata import SOURCE_POSITION, encode_entry

AT = Position(3, 14)
PROPERTIES = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)


def metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)  # type: ignore[arg-type]


@given(
    PROPERTIES,
    st.binary(max_size=50),
    st.fixed_dictionaries(
        {},
        optional={
            "num_messages_in_batch": st.integers(1, 5),
            "compression": st.sampled_from([1, 2, 3, 4]),
            "uuid": st.text(max_size=4),
            "partition_key": st.text(max_size=4),
            "deliver_at_time": st.integers(0, 1 << 40),
            "encryption_param": st.binary(max_size=4),
            "schema_version": st.binary(max_size=8),
            "txnid_most_bits": st.integers(0, 9),
            "txnid_least_bits": st.integers(0, 9),
            "replicate_to": st.just(["north", "west"]),
        },
    ),
)
def test_nothing_changes_but_where_it_comes_from(
    properties: dict[str, str], payload: bytes, fields: dict[str, object]
) -> None:
    before = metadata(**fields)
    for key, value in properties.items():
        before.properties.add(key=key, value=value)
    copy = copy_of(encode_entry(before, payload), AT, "east", "west")
    assert copy is not None
    assert copy.payload == payload
    assert copy.messages == fields.get("num_messages_in_batch", 1)
    after = pb.MessageMetadata.FromString(copy.metadata)
    assert (copy.published_ms, copy.schema_version) == (1, fields.get("schema_version", b""))
    assert source_of(after, "west") == ("pulsar.repl.east-->west", number_of("3:14"))
    assert not after.HasField("txnid_most_bits")
    assert not after.HasField("txnid_least_bits")
    # What is left when that is taken away is what was there.
    del after.properties[len(after.properties) - 1]
    for field in ("replicated_from", "txnid_most_bits", "txnid_least_bits"):
        after.ClearField(field)
        before.ClearField(field)
    assert after == before


@pytest.mark.parametrize(
    "fields",
    [
        {"replicated_from": "north"},
        {"replicated_from": "west"},
        {"replicate_to": ["north"]},
        {"replicate_to": ["__local__"]},
        {"marker_type": 20},
    ],
    ids=str,
)
def test_what_is_not_meant_for_that_cluster_stays(fields: dict[str, object]) -> None:
    assert copy_of(encode_entry(metadata(**fields), b"x"), AT, "east", "west") is None


def test_the_end_of_a_transaction_stays() -> None:
    entry = transaction_marker(TxnId(1, 2), commit=True, now_ms=5)
    assert copy_of(entry, AT, "east", "west") is None


def test_what_no_reader_is_to_see_stays() -> None:
    entry = encode_entry(metadata(txnid_most_bits=1, txnid_least_bits=2), b"x")
    seen: list[tuple[Position, int]] = []

    def hides(position: Position, found: pb.MessageMetadata) -> bool:
        seen.append((position, found.txnid_least_bits))
        return True

    assert copy_of(entry, AT, "east", "west", (hides,)) is None
    assert seen == [(AT, 2)]


def test_a_source_position_of_somebody_else_s_is_replaced() -> None:
    before = metadata()
    before.properties.add(key=SOURCE_POSITION, value="9:9")
    copy = copy_of(encode_entry(before, b"x"), AT, "east", "west")
    assert copy is not None
    assert _properties(copy) == [(SOURCE_POSITION, "3:14")]


def test_a_text_that_reads_like_a_source_position_stays() -> None:
    """Of the bytes of the name alone nothing follows: they may be a key, or another property's."""
    before = metadata(partition_key=SOURCE_POSITION)
    before.properties.add(key="a", value=SOURCE_POSITION)
    copy = copy_of(encode_entry(before, b"x"), AT, "east", "west")
    assert copy is not None
    assert _properties(copy) == [("a", SOURCE_POSITION), (SOURCE_POSITION, "3:14")]


def test_the_number_of_a_schema_is_that_of_the_other_cluster() -> None:
    copy = copy_of(encode_entry(metadata(schema_version=b"\x01"), b"x"), AT, "east", "west")
    assert copy is not None
    assert copy.with_schema_version(b"\x01") is copy
    other = copy.with_schema_version(b"\x07\x08")
    found = pb.MessageMetadata.FromString(other.metadata)
    assert (found.schema_version, other.schema_version) == (b"\x07\x08", b"\x07\x08")
    found.schema_version = b"\x01"
    assert found == pb.MessageMetadata.FromString(copy.metadata)


def _properties(copy: Copy) -> list[tuple[str, str]]:
    return [(pair.key, pair.value) for pair in pb.MessageMetadata.FromString(copy.metadata).properties]


def test_parts_of_a_message_are_told_apart() -> None:
    entry = encode_entry(metadata(uuid="u", num_chunks_from_msg=2, chunk_id=0, total_chunk_msg_size=2), b"x")
    copy = copy_of(entry, AT, "east", "west")
    assert copy is not None
    assert copy.is_chunk


def test_what_can_not_be_parsed_is_an_error_that_says_where() -> None:
    with pytest.raises(UnreadableError, match="3:14"):
        copy_of(b"\x0e\x01\x00\x00\x00\x00\x00\x00\x00\x09abc", AT, "east", "west")
