"""The owner of a bundle: bytes as Pulsar 4.2.4 writes them, and damage."""

from __future__ import annotations

import pytest

from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener, decode_owner, owner_path
from geminga.model.errors import CorruptionError

PATH = owner_path(Bundle("public/default", 0, 0x40000000))
PLAIN = b'{"nativeUrl":"pulsar://b:6650","httpUrl":"http://b:8080","disabled":false,"advertisedListeners":{}}'
FULL = (
    b'{"nativeUrl":"pulsar://b:6650","nativeUrlTls":"pulsar+ssl://b:6651","httpUrl":"http://b:8080",'
    b'"httpUrlTls":"https://b:8443","disabled":true,"advertisedListeners":{"external":'
    b'{"brokerServiceUrl":"pulsar://x:1","brokerHttpUrl":"http://x:2"}}}'
)


def test_an_owner_is_written_as_pulsar_writes_it() -> None:
    assert PATH == "/namespace/public/default/0x00000000_0x40000000"
    plain = OwnerData(OwnerListener("pulsar://b:6650", "", "http://b:8080"), {})
    full = OwnerData(
        OwnerListener("pulsar://b:6650", "pulsar+ssl://b:6651", "http://b:8080", "https://b:8443"),
        {"external": OwnerListener("pulsar://x:1", "", "http://x:2")},
        is_disabled=True,
    )
    for owner, value in [(plain, PLAIN), (full, FULL)]:
        assert owner.encode() == value
        assert decode_owner(PATH, value) == owner


def test_what_is_left_out_and_what_is_not_known_is_passed_over() -> None:
    owner = decode_owner(PATH, b'{"nativeUrlTls":"pulsar+ssl://b:1","httpUrl":null,"later":7}')
    assert owner == OwnerData(OwnerListener("", "pulsar+ssl://b:1"), {})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "does not hold JSON"),
        (b"[" * 5000, "does not hold JSON"),
        (b"7", "holds int"),
        (b"{}", "does not say where its owner is"),
        (b'{"nativeUrl":7}', "nativeUrl is a text"),
        (b'{"nativeUrl":"x","disabled":"no"}', "disabled is true or false"),
        (b'{"nativeUrl":"x","advertisedListeners":[1]}', "advertisedListeners are"),
        (b'{"nativeUrl":"x","advertisedListeners":{"a":1}}', "the listener a is"),
        (b'{"nativeUrl":"x","advertisedListeners":{"a":{"brokerHttpUrl":1}}}', "brokerHttpUrl is a text"),
    ],
)
def test_damage_is_named_with_its_node(value: bytes, why: str) -> None:
    with pytest.raises(CorruptionError, match=f"{PATH}.*{why}"):
        decode_owner(PATH, value)
