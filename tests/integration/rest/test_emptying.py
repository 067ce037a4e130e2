"""Topics truncated and trimmed, over HTTP."""

from __future__ import annotations

import pytest

from support.worlds.rest import EARLIEST, Rest, backlog_of, publish

pytestmark = pytest.mark.integration

FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


def stored_bytes(rest: Rest, path: str) -> int:
    size: int = rest.get(f"{path}/stats").json["storageSize"]
    return size


def test_truncated_topic_is_empty_whatever_retention_says_and_goes_on(rest: Rest, namespace: str, client) -> None:
    topic, path = f"persistent://{namespace}/t", f"persistent/{namespace}/t"
    rest.post(f"namespaces/{namespace}/retention", FOREVER)
    rest.put(path)
    assert rest.delete(f"{path}/truncate").status == 204
    rest.put(f"{path}/subscription/s", EARLIEST)
    publish(client, topic, 3)
    assert rest.delete(f"{path}/truncate").status == 204
    assert (backlog_of(rest, namespace), stored_bytes(rest, path)) == (0, 0)
    assert rest.get(f"{path}/examinemessage").status == 412
    publish(client, topic, 2)
    consumer = client.subscribe(topic, "s")
    assert [consumer.receive(10_000).data() for _ in range(2)] == [b"m0", b"m1"]
    # What is deleted does not come back with a load.
    assert rest.put(f"{path}/unload").status == 204
    assert stored_bytes(rest, path) > 0
    assert rest.get(f"{path}/examinemessage?initialPosition=earliest").body == b"m0"


def test_every_partition_is_truncated_and_trimmed(rest: Rest, namespace: str, client) -> None:
    path = f"persistent/{namespace}/p"
    rest.put(f"{path}/partitions", 3)
    rest.put(f"{path}/subscription/s", EARLIEST)
    for index in range(2):
        publish(client, f"persistent://{namespace}/p-partition-{index}", 2)
    assert rest.post(f"{path}/trim").status == 200
    assert rest.get(f"{path}/partitioned-stats").json["storageSize"] > 0
    assert rest.delete(f"{path}/truncate").status == 204
    stats = rest.get(f"{path}/partitioned-stats").json
    assert (stats["storageSize"], stats["subscriptions"]["s"]["msgBacklog"]) == (0, 0)


def test_trim_deletes_what_is_consumed_and_closed_alone(rest: Rest, namespace: str, client) -> None:
    topic, path = f"persistent://{namespace}/t", f"persistent/{namespace}/t"
    rest.put(path)
    rest.put(f"{path}/subscription/s", EARLIEST)
    publish(client, topic, 3)
    rest.put(f"{path}/unload")
    assert rest.post(f"{path}/trim").status == 200
    assert backlog_of(rest, namespace) == 3
    rest.post(f"namespaces/{namespace}/retention", FOREVER)
    rest.post(f"{path}/subscription/s/skip_all")
    assert rest.post(f"{path}/trim").status == 200
    assert stored_bytes(rest, path) > 0
    rest.delete(f"namespaces/{namespace}/retention")
    assert rest.post(f"{path}/trim").status == 200
    assert stored_bytes(rest, path) == 0


def test_topics_that_can_not_be_emptied_are_refused_with_the_reason(rest: Rest, namespace: str) -> None:
    rest.put(f"persistent/{namespace}/t")
    rest.post(f"persistent/{namespace}/t/maxProducers", 3)
    events = f"persistent/{namespace}/__change_events"
    refused = rest.delete(f"{events}/truncate")
    assert (refused.status, "broker's own" in refused.reason) == (405, True)
    assert rest.post(f"{events}/trim").status == 200
    assert rest.get(f"persistent/{namespace}/t/maxProducers").json == 3
    for method, action, status in (("DELETE", "truncate", 412), ("POST", "trim", 405)):
        assert rest.call(method, f"non-persistent/{namespace}/n/{action}").status == status
        assert rest.call(method, f"persistent/{namespace}/nowhere/{action}").status == 404
