"""What filters are given, and how the process answers. The process itself: tests/integration/test_entry_filters.py."""

from __future__ import annotations

import os

import pytest

from geminga.entry_filters import ACCEPT, REJECT, FilterTarget
from geminga.entry_filters.pipe import (
    LOADED,
    READY,
    VERDICTS,
    AskedEntry,
    FilterBatch,
    Frames,
    encode_batch,
    parse_answer,
)
from geminga.entry_filters.worker import Filters, entry_of, main, serve
from geminga.wire._generated import pulsar_api_pb2 as pb

TARGET = FilterTarget("persistent://a/b/c", "s", "Shared")


def question(**fields):
    metadata = pb.MessageMetadata(**{"producer_name": "p", "sequence_id": 1, "publish_time": 2, **fields})
    return AskedEntry(5, 6, metadata.SerializeToString())


def test_filters_see_the_metadata():
    entry = entry_of(
        question(
            partition_key="k",
            event_time=3,
            deliver_at_time=4,
            num_messages_in_batch=7,
            schema_version=b"\x01",
            compression=pb.ZSTD,
            ordering_key=b"o",
            replicated_from="far",
            properties=[pb.KeyValue(key="a", value="b")],
            encryption_keys=[pb.EncryptionKeys(key="x", value=b"y")],
        ),
        TARGET,
    )
    assert (entry.topic, entry.subscription, entry.ledger_id, entry.entry_id) == ("persistent://a/b/c", "s", 5, 6)
    assert (entry.producer_name, entry.sequence_id, entry.publish_time_ms) == ("p", 1, 2)
    assert (entry.key, entry.event_time_ms, entry.deliver_at_ms, entry.batch_size) == ("k", 3, 4, 7)
    assert (entry.schema_version, entry.compression, entry.ordering_key) == (b"\x01", "ZSTD", b"o")
    assert (entry.replicated_from, entry.properties, entry.is_encrypted) == ("far", {"a": "b"}, True)


def test_what_was_not_set_is_none():
    entry = entry_of(question(), TARGET)
    assert (entry.key, entry.ordering_key, entry.schema_version, entry.batch_size) == (None, None, None, 1)


def answers(filters, names, *questions):
    body = encode_batch(FilterBatch(names, TARGET, questions))[4:]
    return [parse_answer(frame[4:], len(questions)) for frame in filters.answer(body)]


def test_the_first_that_does_not_accept_decides():
    filters = Filters("")
    asked = []
    filters.loaded["yes"] = lambda entry: asked.append("yes") or ACCEPT
    filters.loaded["no"] = lambda entry: asked.append("no") or REJECT
    filters.loaded["last"] = lambda entry: asked.append("last") or ACCEPT
    found = answers(filters, ("yes", "no", "last"), question())
    assert [answer.kind for answer in found] == [LOADED, VERDICTS]
    assert found[1].verdicts == bytes([REJECT.value])
    assert asked == ["yes", "no"]


def exits(entry):
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        (exits, "f of entry 0 of its batch: SystemExit: 3"),
        (lambda entry: None, "f of entry 0 of its batch: it answered None, not ACCEPT, REJECT or RESCHEDULE"),
        (lambda: None, "TypeError"),
    ],
)
def test_a_filter_that_fails_is_told(judge, told):
    filters = Filters("")
    filters.loaded["f"] = judge
    assert told in answers(filters, ("f",), question())[-1].error


def test_metadata_that_can_not_be_read_are_told():
    filters = Filters("")
    found = answers(filters, (), AskedEntry(1, 1, b"\xff"))
    assert found[-1].error == "entry of entry 0 of its batch: its metadata can not be read"


def test_batches_are_answered_until_what_is_read_ends(tmp_path):
    (tmp_path / "mine.py").write_text("from geminga.entry_filters import ACCEPT\ndef f(entry):\n    return ACCEPT\n")
    # Longer than one read.
    long = question(properties=[pb.KeyValue(key="k", value="x" * 100_000)])
    body = encode_batch(FilterBatch(("mine:f",), TARGET, [long, question(), question()]))
    (tmp_path / "batches").write_bytes(body * 3)
    source = os.open(tmp_path / "batches", os.O_RDONLY)
    answers_end, sink = os.pipe()
    serve(str(tmp_path), source, sink)
    os.close(sink)
    frames = list(Frames().feed(os.read(answers_end, 1 << 16)))
    assert frames == [READY, *[LOADED, VERDICTS + bytes(3)] * 3]
    os.close(source)
    os.close(answers_end)


def test_wrong_arguments_are_refused(capsys):
    assert main(["x"]) == 2
    assert "usage" in capsys.readouterr().err
