"""Pulsar's racks and groups of bookies: the page's example, and what is no such JSON."""

from __future__ import annotations

import json
import re

import pytest

from geminga.model.errors import CorruptionError
from geminga.wire.bookkeeper.bookie_racks import (
    BookieRack,
    decode_bookie_racks,
    decode_racks,
    document_of,
    encode_racks,
    with_bookie,
    without_bookie,
)
from support.house.source_tree import ROOT


def test_example_of_the_page() -> None:
    page = (ROOT / "docs" / "formats" / "bookie-racks.md").read_text(encoding="utf-8")
    example = re.search(r"```\n(\{.*?)```", page, re.DOTALL)
    assert example is not None
    assert decode_bookie_racks(example[1].encode()) == {
        "10.0.0.1:3181": BookieRack("/region-a/rack1", frozenset({"default", "tenant-x"})),
        "10.0.0.2:3181": BookieRack("/rack2", frozenset({"default"})),
    }


@pytest.mark.parametrize("value", [b"", b" \n", b"{}", b'{"default": {}}'])
def test_nothing_told_is_nobody_placed(value: bytes) -> None:
    assert decode_bookie_racks(value) == {}


@pytest.mark.parametrize(
    ("rack", "place"),
    [
        ("", ""),
        ("/", ""),
        (" ", ""),
        (None, ""),
        ("a", "/a"),
        ("/a/b/", "/a/b"),
        (" /a//b ", "/a/b"),
        ("日本", "/日本"),
    ],
)
def test_racks_as_people_write_them(rack: str | None, place: str) -> None:
    value = json.dumps({"g": {"b:1": {"rack": rack, "hostname": 7, "new": []}}}).encode()
    assert decode_bookie_racks(value)["b:1"].rack == place


def test_first_group_that_tells_a_rack_is_believed() -> None:
    value = json.dumps({"z": {"b": {"rack": "/z"}}, "a": {"b": {}}, "k": {"b": {"rack": "/k"}}}).encode()
    assert decode_bookie_racks(value) == {"b": BookieRack("/k", frozenset("azk"))}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"g": 3}', "group g"),
        (b'{"g": {"b:1": "rack"}}', "bookie b:1"),
        (b'{"g": {"b:1": {"rack": 7}}}', "rack as text"),
    ],
)
def test_what_is_none_is_damage_that_says_where(value: bytes, told: str) -> None:
    with pytest.raises(CorruptionError, match=told):
        decode_bookie_racks(value, "/bookies")


def test_a_bookie_is_moved_between_groups_as_pulsar_does_it() -> None:
    racks = decode_racks(b'{"z":{"b":{"rack":"/z","later":1},"c":{}},"a":{"b":{"rack":"/a"}},"n":{}}')
    assert document_of(racks, "b") == {"rack": "/a"}
    moved = with_bookie(racks, "m", "b", {"rack": "/m"})
    # Out of the first group that had it, which is gone with it; the other one and all else stay.
    assert encode_racks(moved) == b'{"m":{"b":{"rack":"/m"}},"n":{},"z":{"b":{"rack":"/z","later":1},"c":{}}}'
    assert encode_racks(with_bookie(moved, "m", "d", {})) == (
        b'{"m":{"b":{"rack":"/m"},"d":{}},"n":{},"z":{"b":{"rack":"/z","later":1},"c":{}}}'
    )
    once = without_bookie(moved, "b")
    assert once is not None
    twice = without_bookie(once, "b")
    assert twice is not None
    assert encode_racks(twice) == b'{"n":{},"z":{"c":{}}}'
    assert without_bookie(twice, "b") is None
    assert document_of(twice, "b") is None
    assert encode_racks(with_bookie({}, "日", "b", {"rack": "/a"})) == '{"日":{"b":{"rack":"/a"}}}'.encode()
