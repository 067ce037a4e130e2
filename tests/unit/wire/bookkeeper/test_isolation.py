"""Groups of bookies in a ledger's custom metadata, as Pulsar writes and reads them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.wire.bookkeeper.isolation import IsolationGroups, encode_isolation, group_names, isolation_in
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT

#: As Apache Pulsar 4.2.4 writes it: Jackson's indented form.
OF_PULSAR = b"""{
  "policyClass" : "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy",
  "properties" : {
    "isolationBookieGroups" : "a,b",
    "secondaryIsolationBookieGroups" : "c"
  }
}"""

names = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters=","), min_size=1, max_size=5)
groups = st.builds(IsolationGroups, st.lists(names, max_size=3).map(tuple), st.lists(names, max_size=3).map(tuple))


def read(value: bytes) -> IsolationGroups | None:
    return isolation_in({META_PLACEMENT: value, "application": b"pulsar"})


def test_what_pulsar_writes_is_read_and_what_we_write_says_the_same() -> None:
    found = read(OF_PULSAR)
    assert found == IsolationGroups(("a", "b"), ("c",))
    assert json.loads(encode_isolation(found)) == json.loads(OF_PULSAR)


@given(groups)
def test_what_is_written_is_read(wanted: IsolationGroups) -> None:
    assert read(encode_isolation(wanted)) == wanted


def test_names_are_as_they_are_between_commas() -> None:
    assert group_names("a, b,,c,") == ("a", " b", "c")
    assert group_names("") == ()


@pytest.mark.parametrize(
    "properties", [{}, {"isolationBookieGroups": None}, {"isolationBookieGroups": 7}, {"isolationBookieGroups": ""}]
)
def test_no_first_group_is_no_group_at_all(properties: dict[str, object]) -> None:
    value = json.dumps({**json.loads(OF_PULSAR), "properties": properties}).encode()
    assert read(value) == IsolationGroups()


def test_a_list_is_its_members() -> None:
    document = json.loads(OF_PULSAR)
    document["properties"]["isolationBookieGroups"] = ["a", "b,c"]
    assert read(json.dumps(document).encode()) == IsolationGroups(("a", "b", "c"), ("c",))


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"\xff", b"[" * 100_000, b"[]", b"{}", b'{"policyClass":"x","properties":{}}', OF_PULSAR[:-20] + b"}}"],
)
def test_what_is_of_another_kind_says_nothing(value: bytes) -> None:
    assert read(value) is None
    assert isolation_in({}) is None
