"""Subscriptions over HTTP."""

from __future__ import annotations

import pytest

from support.worlds.rest import EARLIEST, LATEST, Rest, backlog_of, publish

pytestmark = pytest.mark.integration


def test_subscription_is_created_at_its_position_and_deleted(rest: Rest, namespace: str, client) -> None:
    ids = publish(client, f"persistent://{namespace}/t", 5)
    path = f"persistent/{namespace}/t/subscription"
    third = {"ledgerId": ids[2].ledger_id(), "entryId": ids[2].entry_id()}
    behind = {"behind": {**third, "isExcluded": True}, "officially": {**third, "excluded": True}}
    positions = {"all": EARLIEST, "none": LATEST, "third": third, **behind}
    for name, position in positions.items():
        assert rest.put(f"{path}/{name}", position).status == 204
    assert rest.put(f"{path}/empty").status == 204
    assert rest.put(f"{path}/words", "earliest").status == 204
    stats = rest.get(f"persistent/{namespace}/t/stats").json["subscriptions"]
    assert {name: item["msgBacklog"] for name, item in stats.items()} == {
        "all": 5,
        "none": 0,
        "third": 3,
        "behind": 2,
        "officially": 2,
        "empty": 0,
        "words": 5,
    }
    assert rest.put(f"{path}/all", EARLIEST).status == 409
    assert rest.put(f"{path}/bad", {"ledgerId": "x"}).status == 400
    assert sorted(rest.get(f"persistent/{namespace}/t/subscriptions").json) == sorted(stats)
    assert rest.delete(f"{path}/all").status == 204
    assert rest.delete(f"{path}/all").status == 404
    assert rest.get(f"persistent/{namespace}/missing/subscriptions").status == 404


def test_subscription_with_consumers_is_deleted_by_force_only(rest: Rest, namespace: str, client) -> None:
    client.subscribe(f"persistent://{namespace}/t", "s")
    path = f"persistent/{namespace}/t/subscription/s"
    assert rest.delete(path).status == 412
    rest.post(f"namespaces/{namespace}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    assert rest.delete(f"{path}?force=true").status == 204


def test_subscription_properties_are_kept(rest: Rest, namespace: str) -> None:
    rest.put(f"persistent/{namespace}/t")
    path = f"persistent/{namespace}/t/subscription/s"
    assert rest.put(path, {**EARLIEST, "properties": {"a": "1"}}).status == 204
    assert rest.get(f"{path}/properties").json == {"a": "1"}
    assert rest.put(f"{path}/properties", {"b": "2"}).status == 204
    assert rest.get(f"persistent/{namespace}/t/stats").json["subscriptions"]["s"]["subscriptionProperties"] == {
        "b": "2"
    }


def test_cursor_is_moved(rest: Rest, namespace: str, client) -> None:
    path = f"persistent/{namespace}/t/subscription/s"
    topic = f"persistent://{namespace}/t"
    rest.put(f"persistent/{namespace}/t")
    rest.put(path, EARLIEST)
    ids = publish(client, topic, 10)
    assert rest.post(f"{path}/skip/3").status == 204
    assert backlog_of(rest, namespace) == 7
    assert rest.post(f"{path}/skip/-1").status == 412
    assert rest.post(f"{path}/skip/some").status == 404
    assert rest.post(f"{path}/skip_all").status == 204
    assert backlog_of(rest, namespace) == 0
    assert rest.post(f"{path}/resetcursor/0").status == 204
    assert backlog_of(rest, namespace) == 10
    fifth = {"ledgerId": ids[4].ledger_id(), "entryId": ids[4].entry_id()}
    assert rest.post(f"{path}/resetcursor", fifth).status == 204
    assert backlog_of(rest, namespace) == 6
    for excluded in ("isExcluded", "excluded"):  # the second is what Java's own admin client writes
        assert rest.post(f"{path}/resetcursor", fifth).status == 204
        assert rest.post(f"{path}/resetcursor", {**fifth, excluded: True}).status == 204
        assert backlog_of(rest, namespace) == 5
    assert rest.post(f"{path}/resetcursor", LATEST).status == 204
    assert backlog_of(rest, namespace) == 0
    assert rest.post(f"{path}/resetcursor", EARLIEST).status == 204
    assert rest.post(f"{path}/expireMessages", {**fifth, "excluded": True}).status == 204
    assert backlog_of(rest, namespace) == 6
    assert rest.post(f"{path}/expireMessages", fifth).status == 204
    assert backlog_of(rest, namespace) == 5
    every = f"persistent/{namespace}/t/all_subscription/expireMessages"
    assert rest.post(f"{path}/expireMessages/100000").status == 204
    assert rest.post(f"{every}/100000").status == 204
    assert rest.post(f"{every}/-1").status == 412
    assert backlog_of(rest, namespace) == 5
    assert rest.post(f"{path}/skip_all").status == 204
    for nothing in (f"{path}/expireMessages/100000", f"{every}/-1"):
        refused = rest.post(nothing)
        assert refused.status == 409
        assert f"not issued on topic {topic} for subscription s" in refused.reason
    assert rest.post(f"persistent/{namespace}/t/subscription/none/skip_all").status == 404


def test_cursor_is_reset_into_a_batch(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for index in range(5):
        producer.send_async(b"m%d" % index, None)
    producer.flush()
    rest.put(f"persistent/{namespace}/t/subscription/s", EARLIEST)
    entry = rest.get(f"persistent/{namespace}/t/lastMessageId").json
    at = {"ledgerId": entry["ledgerId"], "entryId": entry["entryId"], "batchIndex": 2}
    assert rest.post(f"persistent/{namespace}/t/subscription/s/resetcursor", {**at, "excluded": True}).status == 204
    consumer = client.subscribe(topic, "s")
    assert [consumer.receive(10_000).data() for _ in range(2)] == [b"m3", b"m4"]
