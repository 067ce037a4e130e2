"""Policies as typed views of Pulsar's document."""

from __future__ import annotations

import pytest

from geminga.broker.core.coercion import BodyError
from geminga.broker.ownership.core.local_policies import bundles_in, first_local_policies
from geminga.broker.resources.policies import Policies, bundle_boundaries, completed, new_policies
from geminga.model.errors import PreconditionFailedError


def test_fields_that_are_not_set_read_as_none() -> None:
    policies = Policies({})
    assert not policies.is_deleted
    assert policies.replication_clusters == ()
    assert policies.bundle_boundaries == ("0x00000000", "0xffffffff")


def test_fields_that_are_set_are_read() -> None:
    bundles = {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"]}
    policies = Policies({"deleted": True, "replication_clusters": ["a", "b"], "bundles": bundles})
    assert policies.is_deleted
    assert policies.replication_clusters == ("a", "b")
    assert len(policies.bundle_boundaries) == 3


def test_what_a_new_namespace_holds_is_not_shared_with_the_next() -> None:
    first, second = new_policies(["c"]), new_policies(["c"])
    first["properties"]["a"] = "1"
    assert second["properties"] == {}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 128])
def test_bundles_cover_the_whole_range(count: int) -> None:
    boundaries = [int(boundary, 16) for boundary in bundle_boundaries(count)]
    assert len(boundaries) == count + 1
    assert boundaries[0] == 0
    assert boundaries[-1] == 0xFFFFFFFF
    assert boundaries == sorted(set(boundaries))


@pytest.mark.parametrize("count", [0, 129])
def test_bundle_count_out_of_bounds_is_refused(count: int) -> None:
    with pytest.raises(PreconditionFailedError):
        bundle_boundaries(count)


def test_given_policies_are_completed_with_defaults() -> None:
    whole = completed({"bundles": {"numBundles": 2}, "message_ttl_in_seconds": 9, "persistence": None}, ["c"])
    assert whole["bundles"] == {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
    assert whole["message_ttl_in_seconds"] == 9
    assert whole["replication_clusters"] == ["c"]
    assert "persistence" not in whole
    assert set(new_policies(["c"])) <= set(whole)


@pytest.mark.parametrize(
    "bundles",
    [
        {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 2},
        {"boundaries": ["0x80000000", "0x00000000", "0xffffffff"]},
        {"boundaries": ["zero", "0xffffffff"]},
        {"boundaries": ["0x00000000", "0x80000000", "0x80000000", "0xffffffff"]},
        {"boundaries": ["-0x1", "0x00000000", "0xffffffff"]},
        {"boundaries": ["0x00000000", "0x100000000"]},
        {"numBundles": 1000},
    ],
)
def test_bundles_that_make_no_sense_are_refused(bundles) -> None:
    with pytest.raises(PreconditionFailedError):
        completed({"bundles": bundles}, ["c"])


@pytest.mark.parametrize(
    "boundaries", [["0x10000000", "0xffffffff"], ["0x00000000", "0x80000000"], ["0x00000000"], ["0xffffffff"]]
)
def test_bundles_that_leave_out_hashes_are_refused_in_pulsars_words(boundaries) -> None:
    """A namespace was made of them in which no topic could be looked up by a broker of several."""
    with pytest.raises(BodyError, match="Input bundles do not cover the whole hash range"):
        completed({"bundles": {"boundaries": boundaries}}, ["c"])


def test_given_boundaries_are_kept_in_one_form_in_which_they_can_be_read() -> None:
    whole = completed({"bundles": {"boundaries": ["0x0", "0X80000000", "0xFFFFFFFF"]}}, ["c"])
    assert whole["bundles"] == {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}
    assert len(bundles_in("public/new", first_local_policies("public/new", whole)).all()) == 2
