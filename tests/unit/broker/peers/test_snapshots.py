"""Snapshots of transaction buffers as brokers tell each other."""

from __future__ import annotations

import json

import pytest

from geminga.broker.core.coercion import Json
from geminga.broker.peers.snapshots import snapshot_json, snapshot_of, snapshots_topic
from geminga.model.errors import RemoteError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.transaction.ports import BufferSnapshot


@pytest.mark.parametrize(
    "snapshot",
    [
        BufferSnapshot(EARLIEST),
        BufferSnapshot(Position(3, 7), ((TxnId(1, 2**62), Position(3, 5)), (TxnId(0, 0), Position(0, 0)))),
    ],
)
def test_what_is_sent_is_what_arrives(snapshot: BufferSnapshot) -> None:
    assert snapshot_of(json.loads(json.dumps(snapshot_json(snapshot)))) == snapshot


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"ledgerId": 1, "entryId": 2},
        {"aborts": []},
        {"ledgerId": 1, "entryId": 2, "aborts": [1]},
        {"ledgerId": 1, "entryId": 2, "aborts": [[1, 2, 3]]},
        {"ledgerId": 1, "entryId": 2, "aborts": [[1, 2, 3, "x"]]},
        {"ledgerId": "x", "entryId": 2, "aborts": []},
        {"ledgerId": 1, "entryId": 2**64, "aborts": []},
    ],
)
def test_what_is_no_snapshot_is_refused(document: Json) -> None:
    with pytest.raises(RemoteError):
        snapshot_of(document)


def test_one_topic_of_a_namespace_says_who_keeps_them() -> None:
    name = TopicName.parse("persistent://t/n/topic-partition-3")
    assert str(snapshots_topic(name)) == "persistent://t/n/__transaction_buffer_snapshot"
