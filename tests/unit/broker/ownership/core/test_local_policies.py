"""Local policies: bytes as Pulsar 4.2.4 writes them, what they begin with, and damage."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import Document, encode_document
from geminga.broker.ownership.core.bundles import bundles_of, equal_bundles, whole
from geminga.broker.ownership.core.local_policies import (
    bundles_in,
    decode_local_policies,
    first_local_policies,
    local_policies_path,
    with_bundles,
    with_cuts,
)
from geminga.model.errors import CorruptionError

NAMESPACE = "public/default"
OF_PULSAR = (
    b'{"bundles":{"boundaries":["0x00000000","0x55555555","0xaaaaaaaa","0xffffffff"],"numBundles":3},"migrated":false}'
)


def test_first_local_policies_are_written_as_pulsar_writes_them() -> None:
    assert local_policies_path(NAMESPACE) == "/admin/local-policies/public/default"
    boundaries: Document = {"bundles": {"boundaries": ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"]}}
    number: Document = {"bundles": {"numBundles": 3}}
    for policies in (number, boundaries):
        assert encode_document(first_local_policies(NAMESPACE, policies)) == OF_PULSAR
    assert bundles_in(NAMESPACE, decode_local_policies(NAMESPACE, OF_PULSAR)) == equal_bundles(NAMESPACE, 3)


@pytest.mark.parametrize("policies", [{}, {"bundles": None}, {"bundles": {"numBundles": 0}}])
def test_a_namespace_of_which_nothing_is_said_is_one_bundle(policies: Document) -> None:
    assert bundles_in(NAMESPACE, first_local_policies(NAMESPACE, policies)) == whole(NAMESPACE)
    assert bundles_in(NAMESPACE, {}) == whole(NAMESPACE)


def test_what_is_not_known_is_kept() -> None:
    before: Document = {"bundles": None, "namespaceAntiAffinityGroup": "g", "later": {"a": [1]}}
    after = decode_local_policies(NAMESPACE, encode_document(with_bundles(before, equal_bundles(NAMESPACE, 2))))
    assert after["namespaceAntiAffinityGroup"] == "g"
    assert after["later"] == {"a": [1]}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "does not hold JSON"),
        (b"[" * 5000, "does not hold JSON"),
        (b"[]", "holds list"),
        (b'{"bundles":7}', "boundaries, not 7"),
        (b'{"bundles":{}}', "are a list, not None"),
        (b'{"bundles":{"boundaries":["0x00000000"]}}', "must reach"),
        (b'{"bundles":{"boundaries":["0x00000000",7]}}', "hex digits"),
        (b'{"bundles":{"boundaries":["0x00000000","0x5","0x5","0xffffffff"]}}', "must ascend"),
    ],
)
def test_damage_is_named_with_its_node(value: bytes, why: str) -> None:
    with pytest.raises(CorruptionError, match=f"/admin/local-policies/public/default.*{why}"):
        bundles_in(NAMESPACE, decode_local_policies(NAMESPACE, value))


def test_policies_that_cut_nothing_sensible_are_refused() -> None:
    with pytest.raises(CorruptionError, match=r"policies of namespace public/default: .* must reach"):
        first_local_policies(NAMESPACE, {"bundles": {"boundaries": ["0x00000001", "0xffffffff"]}})
    with pytest.raises(CorruptionError, match="1 to 65536 bundles, not 70000"):
        first_local_policies(NAMESPACE, {"bundles": {"numBundles": 70_000}})


def test_policies_are_told_of_cuts_beside_what_another_split_told() -> None:
    before = {"bundles": {"boundaries": ["0x00000000", "0x40000000", "0xffffffff"], "numBundles": 2}, "ttl": 3}
    after = with_cuts("public/default", before, bundles_of("public/default", [0, 0x80000000, 0xFFFFFFFF]))
    boundaries = ["0x00000000", "0x40000000", "0x80000000", "0xffffffff"]
    assert after == {"bundles": {"boundaries": boundaries, "numBundles": 3}, "ttl": 3}
    # Policies that say nothing but how many.
    five = bundles_of("public/default", [0, 5, 0xFFFFFFFF])
    after = with_cuts("public/default", {"bundles": {"numBundles": 2}}, five)
    assert after["bundles"] == {"boundaries": ["0x00000000", "0x00000005", "0x80000000", "0xffffffff"], "numBundles": 3}
