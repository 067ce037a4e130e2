"""What brokers say of themselves, as Pulsar writes it."""

from __future__ import annotations

import json

import pytest

from geminga.broker.core.coercion import encode_document
from geminga.broker.ownership.core.broker_data import (
    MODULAR_LOAD_MANAGER,
    Leader,
    broker_id_of,
    decode_broker,
    decode_leader,
    registration,
)
from geminga.broker.ownership.core.owner_data import OwnerData, OwnerListener
from geminga.model.errors import CorruptionError

OWN = OwnerListener("pulsar://a:6650", "", "http://a:8080")
EXTERNAL = OwnerListener("pulsar://a.example.org:7000", "", "http://a:8080")


def test_a_registration_has_pulsars_members_and_is_read_again() -> None:
    document = registration(
        "a:8080", OwnerData(OWN, {"internal": OWN, "external": EXTERNAL}), version="1.2", started_ms=77
    )
    assert document["webServiceUrl"] == "http://a:8080"
    assert document["pulsarServiceUrl"] == "pulsar://a:6650"
    assert "pulsarServiceUrlTls" not in document
    assert document["loadManagerClassName"] == MODULAR_LOAD_MANAGER
    assert document["advertisedListeners"] == {
        "internal": {"brokerServiceUrl": "pulsar://a:6650", "brokerHttpUrl": "http://a:8080"},
        "external": {"brokerServiceUrl": "pulsar://a.example.org:7000", "brokerHttpUrl": "http://a:8080"},
    }
    found = decode_broker("a:8080", encode_document(document))
    assert (found.broker_id, found.owner.default) == ("a:8080", OWN)
    assert found.owner.listeners == {"internal": OWN, "external": EXTERNAL}
    assert found.document == document


def test_a_registration_of_apaches_broker_is_read() -> None:
    # Members in the order of 4.2.4's class; values of a broker that was just started.
    value = (
        b'{"brokerId":"b:8080","webServiceUrl":"http://b:8080","pulsarServiceUrl":"pulsar://b:6650",'
        b'"persistentTopicsEnabled":true,"nonPersistentTopicsEnabled":true,"cpu":{"usage":1.0,"limit":200.0},'
        b'"lastUpdate":0,"bundles":[],"protocols":{},"advertisedListeners":'
        b'{"internal":{"brokerServiceUrl":"pulsar://b:6650"}},"startTimestamp":5,"loadReportType":"LocalBrokerData"}'
    )
    found = decode_broker("b:8080", value)
    assert found.owner.default.broker_url == "pulsar://b:6650"
    assert found.owner.listeners["internal"].web_url == "http://b:8080"
    assert found.document["cpu"] == {"usage": 1.0, "limit": 200.0}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "does not hold JSON"),
        (b"[]", "holds list"),
        (b"{}", "does not say where its broker is"),
        (b'{"pulsarServiceUrl":5}', "pulsarServiceUrl is a text"),
        (b'{"pulsarServiceUrl":"pulsar://b:1","advertisedListeners":[1]}', "advertisedListeners are a JSON object"),
        (b'{"pulsarServiceUrl":"pulsar://b:1","advertisedListeners":{"x":1}}', "listener x is a JSON object"),
    ],
)
def test_a_damaged_registration_is_refused_with_its_path(value: bytes, why: str) -> None:
    with pytest.raises(CorruptionError, match=f"/loadbalance/brokers/b:1.*{why}"):
        decode_broker("b:1", value)


def test_the_leader_is_written_and_read_as_pulsars() -> None:
    leader = Leader("a:8080", "http://a:8080")
    assert json.loads(leader.encode()) == {"brokerId": "a:8080", "serviceUrl": "http://a:8080"}
    assert decode_leader(leader.encode()) == leader
    assert decode_leader(b'{"serviceUrl":"http://old:8080"}') == Leader("old:8080", "http://old:8080")
    assert broker_id_of("http://[::1]:8080") == "[::1]:8080"
    assert broker_id_of("http://[x") == ""


@pytest.mark.parametrize("value", [b"", b"{}", b'{"serviceUrl":"http://[x"}', b'{"brokerId":1}', b"3"])
def test_a_leader_that_can_not_be_told_is_damage(value: bytes) -> None:
    with pytest.raises(CorruptionError, match="/loadbalance/leader"):
        decode_leader(value)
