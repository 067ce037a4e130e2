"""Topics over HTTP."""

from __future__ import annotations

import pulsar
import pytest

from support.worlds.rest import Rest, publish

pytestmark = pytest.mark.integration


def test_topic_is_created_listed_and_deleted(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/t"
    assert rest.put(path, {"owner": "me"}).status == 204
    assert rest.put(path).status == 409
    assert rest.get(f"persistent/{namespace}").json == [f"persistent://{namespace}/t"]
    assert rest.get(f"namespaces/{namespace}/topics").json == [f"persistent://{namespace}/t"]
    assert rest.get(f"{path}/properties").json == {"owner": "me"}
    assert rest.put(f"{path}/properties", {"since": "2024"}).status == 204
    assert rest.delete(f"{path}/properties?key=owner").status == 204
    assert rest.get(f"{path}/properties").json == {"since": "2024"}
    assert rest.delete(path).status == 204
    assert rest.delete(path).status == 404
    assert rest.get(f"persistent/{namespace}").json == []
    assert rest.put("persistent/public/nowhere/t").status == 404
    assert rest.get("persistent/public/nowhere").status == 404


def test_topic_name_may_hold_anything_encoded(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/a%2Fb%20c%C3%BC%25"
    assert rest.put(path).status == 204
    assert rest.get(f"persistent/{namespace}").json == [f"persistent://{namespace}/a/b cü%"]
    assert rest.get(f"{path}/stats").status == 200
    assert rest.put(f"{path}/subscription/s%2Fx").status == 204
    assert rest.get(f"{path}/subscriptions").json == ["s/x"]
    assert rest.delete(path).status == 204
    assert rest.put(f"persistent/{namespace}/%00").status == 412


def test_topic_in_use_is_deleted_by_force_only(rest: Rest, namespace: str, client) -> None:
    producer = client.create_producer(f"persistent://{namespace}/t")
    producer.send(b"x")
    assert rest.delete(f"persistent/{namespace}/t").status == 412
    rest.post(f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    assert rest.delete(f"persistent/{namespace}/t?force=true").status == 204
    assert rest.get(f"persistent/{namespace}/t/stats").status == 404


def test_unloaded_topic_goes_on(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"before")
    assert rest.put(f"persistent/{namespace}/t/unload").status == 204
    producer.send(b"after")
    # It may have got the first one before, and gets it again.
    received = [consumer.receive(10_000).data()]
    while received[-1] == b"before" and len(received) < 3:
        received.append(consumer.receive(10_000).data())
    assert received[-1] == b"after"
    assert rest.put(f"persistent/{namespace}/none/unload").status == 404
    assert rest.put(f"namespaces/{namespace}/unload").status == 204


def test_terminated_topic_takes_no_more(rest: Rest, namespace: str, client) -> None:
    (last,) = publish(client, f"persistent://{namespace}/t", 1)
    answer = rest.post(f"persistent/{namespace}/t/terminate")
    assert answer.json == {
        "ledgerId": last.ledger_id(),
        "entryId": last.entry_id(),
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    with pytest.raises(pulsar.PulsarException):
        publish(client, f"persistent://{namespace}/t", 1, send_timeout_millis=3000)
    rest.put(f"persistent/{namespace}/p/partitions", 2)
    assert rest.post(f"persistent/{namespace}/p/terminate").status == 405
    ended = rest.post(f"persistent/{namespace}/p/terminate/partitions").json
    assert sorted(ended) == ["0", "1"]
    # As Pulsar's: the partition is the name, or the topic's, and not in the id.
    assert {end["partitionIndex"] for end in ended.values()} == {-1}
    assert rest.post(f"persistent/{namespace}/p-partition-1/terminate").json["partitionIndex"] == -1
    assert rest.post(f"persistent/{namespace}/none/terminate").status == 404


def test_non_persistent_topic_has_what_makes_sense(rest: Rest, namespace: str, client) -> None:
    topic = f"non-persistent://{namespace}/n"
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"x")
    assert consumer.receive(10_000).data() == b"x"
    assert rest.get(f"non-persistent/{namespace}").json == [topic]
    assert rest.get(f"namespaces/{namespace}/topics?mode=ALL").json == [topic]
    assert rest.get(f"namespaces/{namespace}/topics?mode=PERSISTENT").json == []
    stats = rest.get(f"non-persistent/{namespace}/n/stats").json
    assert stats["msgInCounter"] == 1
    assert stats["subscriptions"]["s"]["consumers"]
    assert rest.get(f"non-persistent/{namespace}/n/internalStats").json["entriesAddedCounter"] == 1
    for path in ("internal-info", "lastMessageId", "subscription/s/position/1"):
        assert rest.get(f"non-persistent/{namespace}/n/{path}").status == 405
    assert rest.post(f"non-persistent/{namespace}/n/terminate").status == 406
    assert rest.get("/metrics").status == 200
