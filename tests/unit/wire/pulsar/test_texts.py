"""How long lists and texts of clients may be: each limit, and what is not looked at can not be beyond one."""

from __future__ import annotations

import pytest

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.numbers import metadata_refusal
from geminga.wire.pulsar.texts import (
    CLUSTERS_BYTES_MAX,
    LISTS_MAX,
    LOOKED_AT_BYTES,
    SAID_BYTES_MAX,
    TEXTS_MAX,
    properties_refusal,
    said_refusal,
    subscription_refusal,
    texts_refusal,
)

ITEMS = {
    "replicate_to": "",
    "encryption_keys": pb.EncryptionKeys(key="", value=b""),
    "properties": pb.KeyValue(key="", value=""),
}


def metadata_with(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(**{"producer_name": "", "sequence_id": 0, "publish_time": 0, **fields})


@pytest.mark.parametrize("name", LISTS_MAX)
def test_a_list_has_no_more_items_than_it_may(name: str) -> None:
    most = LISTS_MAX[name]
    assert texts_refusal(metadata_with(**{name: [ITEMS[name]] * most})) == ""
    beyond = metadata_with(**{name: [ITEMS[name]] * (most + 1)})
    assert texts_refusal(beyond) == f"{name} has {most + 1} items, more than {most}"


@pytest.mark.parametrize("name", TEXTS_MAX)
def test_a_text_has_no_more_bytes_than_it_may(name: str) -> None:
    most = TEXTS_MAX[name]
    assert texts_refusal(metadata_with(**{name: "é" * (most // 2)})) == ""
    assert (
        texts_refusal(metadata_with(**{name: "é" * (most // 2 + 1)}))
        == f"{name} has {most + 2} bytes, more than {most}"
    )


def test_names_of_clusters_have_no_more_bytes_together_than_they_may() -> None:
    names = ["c" * 1024] * (CLUSTERS_BYTES_MAX // 1024)
    assert texts_refusal(metadata_with(replicate_to=names)) == ""
    refusal = texts_refusal(metadata_with(replicate_to=[*names, "c"]))
    assert refusal == f"replicate_to has {CLUSTERS_BYTES_MAX + 1} bytes of names, more than {CLUSTERS_BYTES_MAX}"


@pytest.mark.parametrize("name", LISTS_MAX)
def test_what_is_not_looked_at_is_within_all_limits(name: str) -> None:
    """The smallest metadata beyond a limit are larger than what is looked at, and so refused."""
    smallest = metadata_with(**{name: [ITEMS[name]] * (LISTS_MAX[name] + 1)})
    assert smallest.ByteSize() > LOOKED_AT_BYTES
    assert metadata_refusal(encode_entry(smallest, b""), False).startswith(f"{name} has ")
    assert min(TEXTS_MAX.values()) > LOOKED_AT_BYTES


def test_what_a_client_says_of_itself_has_limits() -> None:
    said = [pb.KeyValue(key="k", value="v" * 1023)] * (SAID_BYTES_MAX // 1024)
    assert said_refusal("consumer_name", "é" * 2048, said) == ""
    assert said_refusal("consumer_name", "é" * 2049, said) == "consumer_name has 4098 bytes, more than 4096"
    refusal = said_refusal("consumer_name", "c", [*said, pb.KeyValue(key="k", value="")])
    assert refusal == f"metadata has {SAID_BYTES_MAX + 1} bytes, more than {SAID_BYTES_MAX}"


def test_a_subscription_s_name_and_properties_have_limits() -> None:
    most = {"k": "v" * (SAID_BYTES_MAX - 1)}
    assert subscription_refusal("é" * 512, most) == properties_refusal("a subscription", most) == ""
    assert subscription_refusal("é" * 513, {}) == "a subscription's name has at most 1024 bytes, not 1026"
    refusal = f"a subscription's properties have at most {SAID_BYTES_MAX} bytes, not {SAID_BYTES_MAX + 2}"
    assert (
        subscription_refusal("s", {**most, "é": ""})
        == properties_refusal("a subscription", {**most, "é": ""})
        == refusal
    )
