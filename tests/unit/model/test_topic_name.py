"""Topic names: short and full forms, partitions, metadata paths, refusals."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName, decode_name, encode_again, encode_name, is_valid_named_entity


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("shop/eu/orders", "persistent://shop/eu/orders"),
        ("persistent://shop/eu/orders", "persistent://shop/eu/orders"),
        ("non-persistent://shop/eu/orders", "non-persistent://shop/eu/orders"),
        ("persistent://shop/eu/a/b c", "persistent://shop/eu/a/b c"),
    ],
)
def test_topic_name_short_or_full_form_parses(text: str, full: str) -> None:
    assert str(TopicName.parse(text)) == full


@pytest.mark.parametrize(
    "text",
    ["a/b", "a/b/c/d", "http://a/b/c", "persistent://a/b", "persistent://a//c", "persistent://a/b/", "a b/ns/t", ""],
)
def test_topic_name_malformed_is_refused(text: str) -> None:
    with pytest.raises(InvalidTopicNameError, match="invalid topic name"):
        TopicName.parse(text)


def test_a_name_of_pulsar_1_is_called_that() -> None:
    with pytest.raises(InvalidTopicNameError, match=r"a name with a cluster in it .* is not served"):
        TopicName.parse("tenant/cluster/namespace/topic")
    first = TopicName.parse("persistent://tenant/cluster/namespace/topic")
    assert (first.namespace, first.local_name) == ("tenant/cluster", "namespace/topic")
    assert "with a cluster in it" in first.missing_hint
    assert TopicName.parse("persistent://tenant/namespace/topic").missing_hint == ""


@pytest.mark.parametrize(
    ("local", "index"),
    [
        ("t-partition-0", 0),
        ("t-partition-12", 12),
        ("t-partition-3-partition-4", 4),
        ("t-partition-01", -1),
        ("t-partition-+1", -1),
        ("t-partition-", -1),
        ("t-partition-x", -1),
        ("t-partition-00", -1),
        ("t-partition--1", -1),
        ("t-partition-2147483647", 2147483647),
        ("t-partition-2147483648", -1),
        ("t-partition-99999999999999", -1),
        ("t-partition-" + "9" * 5000, -1),
        ("t", -1),
    ],
)
def test_partition_index_follows_the_canonical_suffix_only(local: str, index: int) -> None:
    name = TopicName.parse(local)
    assert name.partition == index
    assert name.is_partition is (index >= 0)


def test_partition_and_partitioned_topic_are_inverse() -> None:
    topic = TopicName.parse("non-persistent://a/b/c")
    partition = topic.with_partition(7)
    assert str(partition) == "non-persistent://a/b/c-partition-7"
    assert partition.partitioned_topic == topic
    assert topic.partitioned_topic is topic
    assert not topic.is_persistent
    assert topic.namespace == "a/b"


@given(st.text(min_size=1).filter(lambda s: max(s) < "\ud800" or min(s) > "\udfff"))
def test_managed_ledger_name_roundtrips(local: str) -> None:
    name = TopicName.parse(f"persistent://a/b/{local}")
    path = name.managed_ledger_name
    assert path.count("/") == 3
    assert TopicName.from_managed_ledger_name(path) == name


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("odd ü+%41-12", "odd+%C3%BC%2B%2541-12"),  # as a broker of Apache's logged it
        ("a/b ü", "a%2Fb+%C3%BC"),
        ("~._-*!'()", "%7E._-*%21%27%28%29"),
    ],
)
def test_names_are_encoded_as_javas_url_encoder_does(name: str, encoded: str) -> None:
    assert encode_name(name) == encoded
    assert decode_name(encoded) == name
    assert encode_again(encoded) == encoded
    assert encode_again(quote(name, safe="-_.*")) == encoded


@pytest.mark.parametrize(("name", "valid"), [("a-b=c:d.e_1", True), ("", False), ("a/b", False), ("a b", False)])
def test_named_entity_allows_pulsars_characters(name: str, valid: bool) -> None:
    assert is_valid_named_entity(name) is valid


def test_named_entity_with_trailing_newline_is_refused() -> None:
    assert not is_valid_named_entity("tenant\n")
