"""Bundles partition the hashes of a namespace, however they are split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.coercion import encode_document
from geminga.broker.ownership.core.bundle_split import ALGORITHMS, FlowLimits, TopicLoad, split_keys
from geminga.broker.ownership.core.bundles import (
    LAST_HASH,
    Bundle,
    BundleIndex,
    Bundles,
    bundles_of,
    equal_bundles,
    topic_hash,
)
from geminga.broker.ownership.core.local_policies import (
    bundles_in,
    decode_local_policies,
    with_bundles,
)
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener, decode_owner
from geminga.model.topic_name import TopicName

NAMESPACE = "tenant/ns"
HASHES = st.one_of(st.integers(0, 40), st.integers(LAST_HASH - 40, LAST_HASH), st.integers(0, LAST_HASH))


@st.composite
def cuts(draw: st.DrawFn) -> Bundles:
    inner = draw(st.sets(HASHES.filter(lambda value: 0 < value < LAST_HASH), max_size=12))
    return bundles_of(NAMESPACE, [0, *sorted(inner), LAST_HASH])


TOPICS = st.dictionaries(
    st.text(max_size=5).map(lambda local: f"persistent://{NAMESPACE}/{local}"),
    st.builds(TopicLoad, st.floats(0, 100), st.floats(0, 1e7)),
    max_size=12,
)
LISTENERS = st.builds(OwnerListener, *[st.text(max_size=8)] * 4)


@given(cuts(), HASHES)
def test_every_hash_lies_in_one_bundle(bundles: Bundles, value: int) -> None:
    holders = [bundle for bundle in bundles.all() if bundle.has_hash(value)]
    assert holders == [bundles.at(value)]
    assert bundles.named(holders[0].range) == holders[0]


@given(cuts(), st.data())
def test_a_split_leaves_every_other_bundle_as_it_was(bundles: Bundles, data: st.DataObject) -> None:
    bundle = data.draw(st.sampled_from(bundles.all()))
    algorithm = data.draw(st.sampled_from(ALGORITHMS))
    positions = data.draw(st.lists(HASHES, min_size=1, max_size=5)) if algorithm.startswith("specified") else []
    limits = FlowLimits(10, 1, 0)
    topics = {name: load for name, load in data.draw(TOPICS).items() if bundle.has_hash(topic_hash(name))}
    keys = split_keys(algorithm, bundle, topics, positions, limits)
    assert keys == sorted(set(keys))
    if not keys:
        return
    after = bundles.with_split(bundle, keys)
    assert bundles_of(NAMESPACE, after.boundaries) == after
    assert set(bundles.all()) - set(after.all()) == {bundle}
    parts = [one for one in after.all() if one not in set(bundles.all())]
    assert (parts[0].lower, parts[-1].upper) == (bundle.lower, bundle.upper)
    assert len(parts) == len(keys) + 1


@given(st.integers(1, 1000))
def test_equal_bundles_are_of_one_size_but_for_the_last(count: int) -> None:
    bundles = equal_bundles(NAMESPACE, count).all()
    assert len(bundles) == count
    assert len({bundle.upper - bundle.lower for bundle in bundles[:-1]}) <= 1


@given(cuts(), st.dictionaries(st.sampled_from(["bookieAffinityGroup", "later"]), st.text(max_size=3)))
def test_local_policies_keep_what_is_not_known(bundles: Bundles, rest: dict[str, str]) -> None:
    value = encode_document(with_bundles({"bundles": None, **rest}, bundles))
    document = decode_local_policies(NAMESPACE, value)
    assert bundles_in(NAMESPACE, document) == bundles
    assert {key: document[key] for key in rest} == rest


@given(
    LISTENERS.filter(lambda one: bool(one.broker_url or one.broker_url_tls)),
    st.dictionaries(st.text(max_size=4), LISTENERS, max_size=3),
    st.booleans(),
)
def test_an_owner_is_read_as_it_was_written(
    default: OwnerListener, listeners: dict[str, OwnerListener], is_disabled: bool
) -> None:
    owner = OwnerData(default, listeners, is_disabled)
    assert decode_owner("/namespace/t/n/r", owner.encode()) == owner


RANGES = st.tuples(HASHES, HASHES).filter(lambda ends: ends[0] < ends[1])


BUNDLES = st.builds(lambda which, ends: Bundle(f"tenant/{which}", *ends), st.sampled_from("ab"), RANGES)


@given(st.lists(BUNDLES, max_size=9), st.lists(HASHES, max_size=9))
def test_an_index_finds_a_bundle_of_a_hash_exactly_where_there_is_one_whatever_overlaps(bundles, hashes):
    index = BundleIndex(bundles)
    for namespace in ("tenant/a", "tenant/b", "tenant/c"):
        # The ends themselves are where one off would show.
        for value in {*hashes, *(end for one in bundles for end in (one.lower, one.upper))}:
            fits = {one for one in bundles if one.namespace == namespace and one.has_hash(value)}
            found = index.find_hash(namespace, value)
            assert found in fits if fits else found is None


@given(cuts(), st.sets(st.integers(0, 12)), st.lists(st.text(max_size=5), max_size=9))
def test_an_index_of_some_bundles_of_a_cut_has_their_topics_and_no_others(cut, chosen, locals_):
    bundles = [bundle for number, bundle in enumerate(cut.all()) if number in chosen]
    index = BundleIndex(bundles)
    for local in locals_:
        for namespace in (NAMESPACE, "tenant/other"):
            name = TopicName("persistent", *namespace.split("/"), local)
            found = index.find(name)
            assert found == next((bundle for bundle in bundles if bundle.has(name)), None)
