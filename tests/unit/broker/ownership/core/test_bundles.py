"""Topic to bundle as Pulsar computes it, and what is refused."""

from __future__ import annotations

import pytest

from geminga.broker.ownership.core.bundles import (
    LAST_HASH,
    NAMESPACE_BUNDLES_MAX,
    Bundle,
    boundary_of,
    boundary_text,
    bundles_of,
    equal_bundles,
    topic_hash,
    whole,
)
from geminga.model.errors import PreconditionFailedError
from geminga.model.topic_name import TopicName

FOUR = equal_bundles("public/default", 4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # What Pulsar 4.2.4 says of them.
        ("persistent://public/default/one", "0x2c45fa37"),
        ("persistent://public/default/two", "0x47e3f6a0"),
        ("persistent://public/default/whole-partition-0", "0xe69a6bdd"),
        ("persistent://public/default/whole-partition-1", "0x919d5b4b"),
        ("non-persistent://public/default/one", "0xd6073e1e"),
        ("persistent://public/default/über", "0x16f21f7e"),
        ("persistent://t/ns/a b", "0xc2ed8943"),
        ("persistent://public/default/" + "x" * 200, "0xd4dad7c3"),
    ],
)
def test_a_topic_has_the_hash_that_pulsar_gives_it(name: str, expected: str) -> None:
    assert boundary_text(topic_hash(name)) == expected


def test_the_hash_is_of_the_whole_name() -> None:
    one = TopicName.parse("one")
    assert FOUR.find(one) == FOUR.at(topic_hash("persistent://public/default/one"))
    assert FOUR.find(one).has(one)
    assert not FOUR.find(one).has(TopicName.parse("public/other/one"))
    partitions = {FOUR.find(one.with_partition(index)) for index in range(50)}
    assert partitions == set(FOUR.all())


def test_a_bundle_ends_before_its_upper_boundary_but_for_the_last() -> None:
    first, *_, last = FOUR.all()
    assert first.range == "0x00000000_0x40000000"
    assert last.range == "0xc0000000_0xffffffff"
    assert (first.has_hash(0x3FFFFFFF), first.has_hash(0x40000000)) == (True, False)
    assert FOUR.at(0x40000000) == FOUR.all()[1]
    assert last.has_hash(LAST_HASH)
    assert FOUR.at(LAST_HASH) == last
    assert str(last) == "public/default/0xc0000000_0xffffffff"
    assert whole("a/b").all() == [Bundle("a/b", 0, LAST_HASH)]


@pytest.mark.parametrize("text", ["", "40000000", "0x", "0xg", "0x100000000", "0x4_0", "-0x1", "0x-1", 7, None])
def test_a_boundary_that_is_none_is_refused(text: object) -> None:
    with pytest.raises(PreconditionFailedError, match="up to eight hex digits"):
        boundary_of(text)


@pytest.mark.parametrize(
    ("boundaries", "why"),
    [
        ([], "must reach from"),
        ([0], "must reach from"),
        ([1, LAST_HASH], "must reach from"),
        ([0, LAST_HASH - 1], "must reach from"),
        ([0, 5, 5, LAST_HASH], "0x00000005 comes after 0x00000005"),
        ([0, 7, 5, LAST_HASH], "0x00000005 comes after 0x00000007"),
        ([*range(NAMESPACE_BUNDLES_MAX + 1), LAST_HASH], "more than 65536"),
    ],
)
def test_boundaries_that_do_not_partition_the_hashes_are_refused(boundaries: list[int], why: str) -> None:
    with pytest.raises(PreconditionFailedError, match=why):
        bundles_of("a/b", boundaries)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0x00000000", "two boundaries"),
        ("0x00000000_0x80000000", "has no bundle 0x00000000_0x80000000"),
        ("0x10000000_0x40000000", "has no bundle"),
        ("x_y", "hex digits"),
    ],
)
def test_a_range_that_is_no_bundle_is_refused(text: str, why: str) -> None:
    with pytest.raises(PreconditionFailedError, match=why):
        FOUR.named(text)


def test_a_namespace_may_have_as_many_bundles_as_the_limit_says() -> None:
    assert len(bundles_of("p/n", [*range(NAMESPACE_BUNDLES_MAX), LAST_HASH]).boundaries) == NAMESPACE_BUNDLES_MAX + 1


@pytest.mark.parametrize("count", [0, -1, NAMESPACE_BUNDLES_MAX + 1])
def test_a_number_of_bundles_that_can_not_be_is_refused(count: int) -> None:
    with pytest.raises(PreconditionFailedError, match="1 to 65536 bundles"):
        equal_bundles("a/b", count)


def test_a_split_that_can_not_be_is_refused() -> None:
    first = FOUR.all()[0]
    for keys, why in [([], "nothing was said"), ([0], "0x0 is not"), ([5, 0x40000000], "0x40000000 is not")]:
        with pytest.raises(PreconditionFailedError, match=why):
            FOUR.with_split(first, keys)
    with pytest.raises(PreconditionFailedError, match="has no bundle"):
        FOUR.with_split(Bundle("public/default", 0, 7), [3])
    narrow = bundles_of("a/b", [0, 1, LAST_HASH])
    with pytest.raises(PreconditionFailedError, match="not larger than 1"):
        narrow.with_split(narrow.all()[0], [1])
    many = equal_bundles("a/b", NAMESPACE_BUNDLES_MAX)
    with pytest.raises(PreconditionFailedError, match="more than 65536"):
        many.with_split(many.all()[0], [1])
