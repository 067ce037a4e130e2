"""Partitioned topics over HTTP."""

from __future__ import annotations

import pulsar
import pytest

from geminga.broker.rest.calls.targets import UNUSED_LOADED_MAX
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_partitioned_topic_lives_and_grows(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/p"
    assert rest.put(f"{path}/partitions", 2).status == 204
    assert rest.put(f"{path}/partitions", 2).status == 409
    assert rest.get(f"{path}/partitions").json["partitions"] == 2
    assert rest.post(f"{path}/partitions", 1).status == 422
    assert rest.post(f"{path}/partitions", 3).status == 204
    assert rest.get(f"{path}/partitions").json["partitions"] == 3
    assert rest.get(f"persistent/{namespace}/partitioned").json == [f"persistent://{namespace}/p"]
    assert len(rest.get(f"persistent/{namespace}").json) == 3
    assert rest.put(f"{path}/properties", {"a": "b"}).status == 204
    assert rest.get(f"{path}/properties").json == {"a": "b"}
    assert rest.delete(f"{path}/partitions").status == 204
    assert rest.delete(f"{path}/partitions").status == 404
    assert rest.get(f"persistent/{namespace}").json == []
    for body, status in ((0, 406), (-1, 406), ("two", 400), (None, 406)):
        assert rest.put(f"{path}/partitions", body).status == status


def test_partitions_of_an_unknown_topic_depend_on_the_policy(rest: Rest, namespace: str) -> None:
    path = f"persistent/{namespace}/u/partitions"
    assert rest.get(path).status == 404
    assert rest.get(f"{path}?checkAllowAutoCreation=true").json["partitions"] == 0
    creation = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
    rest.post(f"namespaces/{namespace}/autoTopicCreation", creation)
    assert rest.get(f"persistent/{namespace}/v/partitions?checkAllowAutoCreation=true").json["partitions"] == 4


@pytest.mark.parametrize("name", ["p-partition-0", "p-partition-x", "a-partition-0-b"])
def test_partitioned_topic_is_not_named_like_a_partition(rest: Rest, namespace: str, name: str) -> None:
    answer = rest.put(f"persistent/{namespace}/{name}/partitions", 2)
    assert answer.status == 412
    assert "-partition-" in answer.reason
    assert rest.get(f"persistent/{namespace}").json == []


def test_partitions_that_nobody_used_are_not_loaded_to_tell_nothing(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    path = f"persistent/{namespace}/many"
    count = UNUSED_LOADED_MAX + 1
    assert rest.put(f"{path}/partitions", count).status == 204
    assert rest.post(f"{path}/createMissedPartitions").status == 204
    names = rest.get(f"persistent/{namespace}").json
    assert names == sorted(f"persistent://{namespace}/many-partition-{index}" for index in range(count))
    used = f"persistent://{namespace}/many-partition-{count - 1}"
    client.subscribe(used, "sub").close()
    stats = rest.get(f"{path}/partitioned-stats").json
    assert (list(stats["partitions"]), list(stats["subscriptions"])) == ([used], ["sub"])
    assert rest.get(f"{path}/subscriptions").json == ["sub"]
    assert rest.post(f"{path}/subscription/sub/skip_all").status == 204
    assert rest.post(f"{path}/subscription/other/skip_all").status == 404
    assert rest.delete(f"{path}/partitions").status == 204
    assert rest.get(f"persistent/{namespace}").json == []
