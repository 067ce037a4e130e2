"""Shadow topics over REST: made with their source, named by it, read by the client; bad input says what was wrong."""

from __future__ import annotations

import pytest

from geminga import Standalone
from geminga.broker.rest.topic_routes.shadows import SHADOWS_MAX
from geminga.client import InitialPosition, PulsarException
from geminga.client.blocking import connect
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

SOURCE = "PULSAR.SHADOW_SOURCE"


def test_a_shadow_is_made_named_read_and_goes(rest: Rest, namespace: str, broker: Standalone) -> None:
    source, shadow = (f"persistent://{namespace}/{name}" for name in ("source", "shadow"))
    at, there = f"persistent/{namespace}/source", f"persistent/{namespace}/shadow"
    assert rest.put(at).status == 204
    assert rest.put(there, {SOURCE: source, "team": "a"}).status == 204
    assert rest.get(f"{there}/properties").json == {SOURCE: source, "team": "a"}
    assert rest.put(f"{at}/shadowTopics", [shadow]).status == 204
    assert rest.get(f"{at}/shadowTopics").json == [shadow]
    with connect(broker.service_url) as client:
        producer = client.create_producer(source)
        ids = [producer.send(f"m{number}".encode()) for number in range(3)]
        consumer = client.subscribe(shadow, "s", initial_position=InitialPosition.Earliest)
        received = [consumer.receive(5000) for _ in range(3)]
        assert [message.data() for message in received] == [b"m0", b"m1", b"m2"]
        assert [(m.message_id().ledger_id(), m.message_id().entry_id()) for m in received] == [
            (each.ledger_id(), each.entry_id()) for each in ids
        ]
        consumer.acknowledge_cumulative(received[-1])
        with pytest.raises(PulsarException, match="shadow topic"):
            client.create_producer(shadow).send(b"no")
    assert rest.get(f"{there}/subscriptions").json == ["s"]
    assert rest.get(f"{at}/subscriptions").json == []
    assert rest.get(f"{there}/internalStats").json["geminga"]["shadow"]["source"] == source
    for refused in (
        rest.put(f"{there}/compaction"),
        rest.post(f"{there}/terminate"),
        rest.delete(f"{there}/truncate"),
        rest.put(f"{there}/offload", {"ledgerId": 1 << 40, "entryId": 0}),
    ):
        assert refused.status in (405, 409, 412), refused
    assert rest.get(f"{there}/stats").json["subscriptions"]["s"]["msgBacklog"] == 0
    assert rest.delete(f"{at}/shadowTopics").status == 204
    assert rest.delete(f"{there}?force=true").status == 204
    assert rest.get(f"{at}/internalStats").json["numberOfEntries"] == 3


def test_a_partitioned_shadow_has_the_partitions_of_its_source(rest: Rest, namespace: str) -> None:
    source, shadow = (f"persistent://{namespace}/{name}" for name in ("source", "shadow"))
    rest.put(f"persistent/{namespace}/source/partitions", 2)
    for partitions in (1, 3):
        body = {"partitions": partitions, "properties": {SOURCE: source}}
        refused = rest.put(f"persistent/{namespace}/shadow/partitions", body)
        assert (refused.status, "2 partitions" in refused.reason) == (412, True)
    body = {"partitions": 2, "properties": {SOURCE: source}}
    assert rest.put(f"persistent/{namespace}/shadow/partitions", body).status == 204
    assert rest.put(f"persistent/{namespace}/source/shadowTopics", [shadow]).status == 204
    parts = rest.get(f"persistent/{namespace}/shadow-partition-1/internalStats").json["geminga"]
    assert parts["shadow"]["source"] == f"{source}-partition-1"


def test_what_can_be_no_shadow_is_refused_with_the_reason(rest: Rest, namespace: str) -> None:
    source, other = (f"persistent://{namespace}/{name}" for name in ("source", "other"))
    at = f"persistent/{namespace}/source"
    rest.put(at)
    rest.put(f"persistent/{namespace}/other")
    for body, why in (
        ([], "Cannot specify empty shadow topics, please use remove command instead."),
        ([""], "Invalid shadow topic name"),
        ([f"non-persistent://{namespace}/x"], "Only persistent topic can be set as shadow topic"),
        ([f"persistent://{namespace}/nowhere"], "not exists"),
        ([other], f"was not created to show {source}: it shows no other topic"),
        ([f"{other}-{number}" for number in range(SHADOWS_MAX + 1)], "at most 100"),
    ):
        refused = rest.put(f"{at}/shadowTopics", body)
        assert (refused.status, why in refused.reason) == (412, True), refused.reason
    for name, why in ((f"persistent://{namespace}/nowhere", "does not exist"), ("a/b", "invalid topic name")):
        refused = rest.put(f"persistent/{namespace}/shadow", {SOURCE: name})
        assert (refused.status, why in refused.reason) == (412, True), refused.reason
    refused = rest.put(f"{at}/properties", {SOURCE: other})
    assert (refused.status, "when a topic is created" in refused.reason) == (412, True)
    assert rest.put(f"persistent/{namespace}/plain", {SOURCE: ""}).status == 204


def test_what_a_source_says_is_asked_by_its_shadows_owner(rest: Rest, namespace: str) -> None:
    source, shadow = (f"persistent://{namespace}/{name}" for name in ("source", "shadow"))
    at = f"persistent/{namespace}/source"
    rest.put(at)
    asked = f"{at}/shadowState?shadow={shadow}&ledgerId=-1&entryId=-1"
    assert rest.get(asked).json["listed"] is False
    rest.put(f"persistent/{namespace}/shadow", {SOURCE: source})
    rest.put(f"{at}/shadowTopics", [shadow])
    word = rest.get(asked).json
    assert (word["listed"], word["aborts"], word["whole"]) == (True, [], True)
    assert rest.put(f"persistent/{namespace}/shadow/shadowState", word).status == 204
    assert rest.put(f"persistent/{namespace}/shadow/shadowState", {"listed": 1}).status == 400
    assert rest.get(f"{at}/shadowState?shadow={shadow}").status == 400


def test_what_readers_of_the_source_do_not_get_is_not_shown(rest: Rest, namespace: str, broker: Standalone) -> None:
    source, shadow = (f"persistent://{namespace}/{name}" for name in ("source", "shadow"))
    at, there = f"persistent/{namespace}/source", f"persistent/{namespace}/shadow"
    rest.put(at)
    rest.put(there, {SOURCE: source})
    rest.put(f"{at}/shadowTopics", [shadow])
    with connect(broker.service_url) as client:
        producer = client.create_producer(source)
        consumer = client.subscribe(shadow, "s", initial_position=InitialPosition.Earliest)
        producer.send(b"before")
        with pytest.raises(KeyError), client.transaction() as aborted:
            producer.send(b"aborted", txn=aborted)
            raise KeyError
        with client.transaction() as still_open:
            producer.send(b"committed", txn=still_open)
            producer.send(b"behind")
            assert consumer.receive(5000).data() == b"before"
            with pytest.raises(PulsarException):
                consumer.receive(200)
        assert [consumer.receive(5000).data() for _ in range(2)] == [b"committed", b"behind"]
        # The same where it is read from what is stored.
        rest.put(f"{there}/unload")
        later = client.subscribe(shadow, "later", initial_position=InitialPosition.Earliest)
        assert [later.receive(5000).data() for _ in range(3)] == [b"before", b"committed", b"behind"]
        with pytest.raises(PulsarException):
            later.receive(200)
