"""What an operator does in a day, in one sequence over plain HTTP: every kind of thing the admin REST is for."""

from __future__ import annotations

import pulsar
import pytest

from geminga import Standalone
from support.processes.official import quiet_client
from support.worlds.rest import EARLIEST, Answer, Rest, backlog_of, publish

pytestmark = pytest.mark.integration

TENANT, NAMESPACE = "acme", "acme/orders"
TOPIC, PARTITIONED = f"persistent/{NAMESPACE}/t", f"persistent/{NAMESPACE}/events"
URL, PARTITIONED_URL = TOPIC.replace("/", "://", 1), PARTITIONED.replace("/", "://", 1)


def done(answer: Answer) -> None:
    """204, and no body."""
    assert (answer.status, answer.body) == (204, b"")


def test_an_operators_day(tmp_path) -> None:
    with Standalone(config={"forceDeleteNamespaceAllowed": True}) as broker:
        client = quiet_client(broker.service_url, tmp_path)
        rest = Rest(broker.web_service_url)
        _look_around(rest, broker)
        _set_up(rest)
        _run_a_topic(rest, client)
        _run_a_partitioned_topic(rest, client)
        _watch(rest)
        client.close()
        _clear_up(rest)


def _look_around(rest: Rest, broker: Standalone) -> None:
    assert rest.get("brokers/health").body == b"ok"
    assert rest.get("brokers/ready").body == b"ok"
    assert rest.get("brokers/standalone").json == rest.get("brokers").json == [f"127.0.0.1:{broker.web_port}"]
    assert rest.get("brokers/leaderBroker").json["serviceUrl"] == broker.web_service_url
    assert rest.get("clusters").json == ["standalone"]
    assert rest.get("clusters/standalone").json["brokerServiceUrl"] == broker.service_url
    assert "public" in rest.get("tenants").json
    assert "public/default" in rest.get("namespaces/public").json


def _set_up(rest: Rest) -> None:
    assert rest.put("clusters/elsewhere", {"serviceUrl": "http://elsewhere:8080"}).status == 200
    done(rest.delete("clusters/elsewhere"))
    assert rest.put(f"namespaces/{NAMESPACE}").status == 404
    done(rest.put(f"tenants/{TENANT}", {"adminRoles": ["ops"], "allowedClusters": ["standalone"]}))
    assert rest.put(f"tenants/{TENANT}", {"allowedClusters": ["standalone"]}).status == 409
    done(rest.post(f"tenants/{TENANT}", {"adminRoles": ["dev", "ops"], "allowedClusters": ["standalone"]}))
    assert rest.get(f"tenants/{TENANT}").json["adminRoles"] == ["dev", "ops"]
    done(rest.put(f"namespaces/{NAMESPACE}"))
    assert rest.get(f"namespaces/{TENANT}").json == [NAMESPACE]
    assert rest.get(f"namespaces/{NAMESPACE}").json["replication_clusters"] == ["standalone"]
    assert rest.get(f"namespaces/{NAMESPACE}/bundles").json["numBundles"] == 4
    done(rest.post(f"namespaces/{NAMESPACE}/permissions/reader", ["consume"]))
    assert rest.get(f"namespaces/{NAMESPACE}/permissions").json == {"reader": ["consume"]}
    done(rest.delete(f"namespaces/{NAMESPACE}/permissions/reader"))
    retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    done(rest.post(f"namespaces/{NAMESPACE}/retention", retention))
    assert rest.get(f"namespaces/{NAMESPACE}/retention").json == retention


def _run_a_topic(rest: Rest, client: pulsar.Client) -> None:
    done(rest.put(TOPIC, {"owner": "me"}))
    assert rest.put(TOPIC).status == 409
    assert rest.get(f"persistent/{NAMESPACE}").json == [URL]
    assert rest.get(f"{TOPIC}/properties").json == {"owner": "me"}
    assert rest.get(f"/lookup/v2/topic/{TOPIC}").json["brokerUrl"].startswith("pulsar://")
    assert rest.get(f"/lookup/v2/topic/{TOPIC}/bundle").body.startswith(b"0x")
    done(rest.put(f"{TOPIC}/subscription/billing", EARLIEST))
    assert rest.get(f"{TOPIC}/subscriptions").json == ["billing"]
    publish(client, URL, 10)
    subscription = f"{TOPIC}/subscription/billing"
    assert rest.get(f"{subscription}/position/1").body == b"m0"
    done(rest.post(f"{subscription}/skip/3"))
    assert rest.get(f"{subscription}/position/1").body == b"m3"
    done(rest.put(f"{TOPIC}/unload"))
    assert backlog_of(rest, NAMESPACE, "billing") == 7
    done(rest.post(f"{subscription}/skip_all"))
    assert backlog_of(rest, NAMESPACE, "billing") == 0
    done(rest.post(f"{subscription}/resetcursor/0"))
    assert backlog_of(rest, NAMESPACE, "billing") == 10
    fifth = {"ledgerId": rest.get(f"{TOPIC}/lastMessageId").json["ledgerId"], "entryId": 5}
    done(rest.post(f"{subscription}/resetcursor", fifth))
    assert backlog_of(rest, NAMESPACE, "billing") == 5
    assert rest.get(f"{TOPIC}/ledger/{fifth['ledgerId']}/entry/5").body == b"m5"
    consumer = client.subscribe(URL, "billing")
    assert consumer.receive(10_000).data() == b"m5"
    assert rest.delete(subscription).status == 412
    assert rest.delete(TOPIC).status == 412
    consumer.close()
    done(rest.delete(subscription))
    last = rest.post(f"{TOPIC}/terminate").json
    assert last["entryId"] == 9
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(URL).send(b"too late")
    done(rest.delete(f"{TOPIC}?force=true"))
    assert rest.get(f"{TOPIC}/stats").status == 404


def _run_a_partitioned_topic(rest: Rest, client: pulsar.Client) -> None:
    done(rest.put(f"{PARTITIONED}/partitions", 2))
    assert rest.get(f"persistent/{NAMESPACE}/partitioned").json == [PARTITIONED_URL]
    done(rest.put(f"{PARTITIONED}/subscription/all", EARLIEST))
    producer = client.create_producer(PARTITIONED_URL, batching_enabled=False)
    for number in range(10):
        producer.send(b"%d" % number)
    done(rest.post(f"{PARTITIONED}/partitions", 3))
    assert rest.get(f"{PARTITIONED}/partitions").json["partitions"] == 3
    assert rest.post(f"{PARTITIONED}/partitions", 1).status == 422
    # The new partition has the subscription from the start: what is published there before a consumer comes is kept.
    publish(client, f"{PARTITIONED_URL}-partition-2", 2)
    stats = rest.get(f"{PARTITIONED}/partitioned-stats").json
    assert (stats["msgInCounter"], stats["subscriptions"]["all"]["msgBacklog"]) == (12, 12)
    assert len(stats["partitions"]) == 3
    assert rest.get(f"{PARTITIONED}-partition-0/internalStats").json["cursors"]["all"]
    consumer = client.subscribe(PARTITIONED_URL, "all")
    assert len({consumer.receive(10_000).message_id().serialize() for _ in range(12)}) == 12
    producer.close()
    consumer.close()
    assert sorted(rest.post(f"{PARTITIONED}/terminate/partitions").json) == ["0", "1", "2"]


def _watch(rest: Rest) -> None:
    lines = rest.get("/metrics").body.decode().splitlines()
    assert any(line.startswith("pulsar_topics_count{") and NAMESPACE in line for line in lines)
    assert any(line.startswith("pulsar_subscription_back_log{") and PARTITIONED_URL in line for line in lines)


def _clear_up(rest: Rest) -> None:
    assert rest.delete(f"namespaces/{NAMESPACE}").status == 409
    done(rest.delete(f"{PARTITIONED}/partitions"))
    assert rest.get(f"persistent/{NAMESPACE}").json == []
    assert rest.delete(f"tenants/{TENANT}").status == 409
    done(rest.delete(f"namespaces/{NAMESPACE}"))
    done(rest.delete(f"tenants/{TENANT}"))
    assert TENANT not in rest.get("tenants").json
