"""Manifests: what is written is read, what is damaged or newer is refused with its place."""

from __future__ import annotations

import json

import pytest

from geminga.lake.core.manifest import Manifest, ManifestLedger, decode_manifest, encode_manifest
from geminga.model.errors import CorruptionError

LEDGER = ManifestLedger(3, "ab" * 16, "ledger-3.parquet", 10, 100, 5, 50, 20, 19, None, 7)
MANIFEST = Manifest("persistent://public/default/t", 1, 2, 3, (LEDGER, LEDGER._replace(ledger_id=4)))


def test_manifest_comes_back():
    assert decode_manifest(encode_manifest(MANIFEST), "here") == MANIFEST
    more = {**json.loads(encode_manifest(MANIFEST)), "newMember": 1}
    assert decode_manifest(json.dumps(more).encode(), "here") == MANIFEST


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "newer"),
        ({"topic": 5}, "topic"),
        ({"ledgers": {}}, "ledgers"),
        ({"ledgers": [1]}, "no object"),
        ({"createdMs": True}, "createdMs"),
    ],
)
def test_what_is_damaged_is_refused_with_its_place(change, told):
    document = {**json.loads(encode_manifest(MANIFEST)), **change}
    with pytest.raises(CorruptionError, match=f"here.*{told}"):
        decode_manifest(json.dumps(document).encode(), "here")


def test_file_elsewhere_and_unsorted_ledgers_are_refused():
    with pytest.raises(CorruptionError, match="no name"):
        decode_manifest(encode_manifest(MANIFEST._replace(ledgers=(LEDGER._replace(file="../x"),))), "here")
    with pytest.raises(CorruptionError, match="ascend"):
        decode_manifest(encode_manifest(MANIFEST._replace(ledgers=(LEDGER, LEDGER))), "here")
    for data in (b"", b"[]", b"\xff"):
        with pytest.raises(CorruptionError, match="here"):
            decode_manifest(data, "here")
