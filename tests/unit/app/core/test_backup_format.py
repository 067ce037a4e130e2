"""The manifest of a backup: what is read back, and what is refused."""

from __future__ import annotations

import json

import pytest

from geminga.app.storage.core.backup_format import BackupFile, BackupManifest, decode_manifest, encode_manifest
from geminga.model.crc32c import crc32c
from geminga.model.errors import DataDirectoryError
from support.house.source_tree import ROOT

MANIFEST = BackupManifest(
    backup_id="00112233aabbccdd",
    serial=3,
    as_of_ms=1_795_849_366_605,
    program="geminga 0.1.0",
    directory_format=1,
    origin="",
    bookies={"bookie": "000102030405060708090a0b0c0d0e0f"},
    files=(BackupFile("bookie/journal/cookie", "00000003-bookie-journal-cookie", 110, 0x1A2B),),
)


def spoilt(**changes: object) -> bytes:
    document = {**json.loads(encode_manifest(MANIFEST))["backup"], **changes}
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({"format": 1, "backup": document, "crc32c": f"{crc32c(text):08x}"}).encode()


def test_manifest_is_read_as_it_was_written() -> None:
    page = (ROOT / "docs" / "formats" / "backup.md").read_text(encoding="utf-8")
    assert f"\n{encode_manifest(MANIFEST).decode()}```" in page
    assert decode_manifest(encode_manifest(MANIFEST), "m") == MANIFEST


def test_text_that_no_reader_of_json_takes_is_damage() -> None:
    with pytest.raises(DataDirectoryError, match="m is damaged"):
        decode_manifest(b"[" * 100_000, "m")


def test_backup_of_a_cluster_is_not_read_by_programs_that_know_none() -> None:
    of_cluster = MANIFEST._replace(origin="cluster:c1", bookies={})
    written = encode_manifest(of_cluster)
    assert json.loads(written)["format"] == 2
    assert decode_manifest(written, "m") == of_cluster
    assert decode_manifest(written, "m").is_of_cluster


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "m is damaged: Expecting value"),
        (b"[]", "m is damaged: it names no format number"),
        (b'{"format": true}', "m is damaged: it names no format number"),
        (b'{"format": 3}', "m has backup format 3; this program reads formats up to 2"),
        (b'{"format": 1}', "m is damaged: its checksum is another one"),
        (
            encode_manifest(MANIFEST).replace(b'"format":1', b'"format":2'),
            "m is damaged: format 2, expected 1 of such a backup",
        ),
        (encode_manifest(MANIFEST).replace(b'"serial":3', b'"serial":4'), "its checksum is another one"),
        (spoilt(files=[["../../etc/passwd", "a", 1, "00000000"]]), "'..' is no name of a file"),
        (spoilt(files=[["a", "../b", 1, "00000000"]]), "'../b' is no name of a file"),
        (spoilt(files=[["a", "/b", 1, "00000000"]]), "'/b' is no name of a file"),
        (spoilt(files=[["a", "b", 1, "0"]]), "'0' is no checksum"),
        (spoilt(files=[["a", "b", "x", "00000000"]]), "invalid literal"),
    ],
)
def test_damaged_newer_or_hostile_manifest_is_refused_by_name(data: bytes, told: str) -> None:
    with pytest.raises(DataDirectoryError) as refused:
        decode_manifest(data, "m")
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("origin", "bookies", "is_same"),
    [
        ("here", {"bookie": "00", "bookie-2": "01"}, True),
        ("here", {"bookie": "00", "bookie-2": "01", "bookie-3": "02"}, True),
        ("there", {"bookie": "00", "bookie-2": "01"}, False),
        ("here", {"bookie": "00", "bookie-2": "02"}, False),
        ("here", {"bookie": "00"}, False),
    ],
)
def test_files_are_those_of_a_directory_whose_bookies_are_what_they_were(
    origin: str, bookies: dict[str, str], is_same: bool
) -> None:
    manifest = MANIFEST._replace(origin="here", bookies={"bookie": "00", "bookie-2": "01"})
    assert manifest.is_of(origin, bookies) is is_same
