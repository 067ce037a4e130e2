"""``/metrics``."""

from __future__ import annotations

import pytest

from geminga import Standalone
from support.house.exposition import samples
from support.processes.official import quiet_client
from support.worlds.rest import EARLIEST, Rest, publish

pytestmark = pytest.mark.integration


def test_metrics_name_topics_and_subscriptions(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    client.subscribe(topic, "s")
    publish(client, topic, 2)
    answer = rest.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.body.decode().splitlines()
    labels = f'cluster="standalone",namespace="{namespace}",topic="{topic}"'
    assert f"pulsar_in_messages_total{{{labels}}} 2" in lines
    assert f'pulsar_subscription_back_log{{{labels},subscription="s"}} 2' in lines
    assert f'pulsar_topics_count{{cluster="standalone",namespace="{namespace}"}} 1' in lines
    assert f'pulsar_out_messages_total{{{labels},subscription="s"}} 2' in lines
    assert not any(line.startswith(f"pulsar_out_messages_total{{{labels}}}") for line in lines)
    assert f'pulsar_subscription_in_replay{{{labels},subscription="s"}} 0' in lines
    assert "# TYPE pulsar_in_messages_total counter" in lines
    assert any(line.startswith("process_resident_memory_bytes{") for line in lines)
    assert any(line.startswith("pulsar_active_connections{") for line in lines)
    assert len(set(lines)) == len(lines)


def test_metrics_of_namespaces_have_pulsars_labels() -> None:
    with Standalone(config={"exposeTopicLevelMetricsInPrometheus": False}) as broker:
        rest = Rest(broker.web_service_url)
        rest.put("persistent/public/default/t")
        rest.put("persistent/public/default/t/subscription/s", EARLIEST)
        lines = rest.get("/metrics").body.decode().splitlines()
    labels = 'cluster="standalone",namespace="public/default"'
    assert f'pulsar_msg_backlog{{{labels},remote_cluster="local"}} 0' in lines
    assert f"pulsar_subscriptions_count{{{labels}}} 1" in lines
    assert [line for line in lines if line.startswith("pulsar_topics_count")] == [f"pulsar_topics_count{{{labels}}} 1"]
    assert not any(",topic=" in line for line in lines)


@pytest.mark.parametrize("has_topics", [True, False])
def test_the_page_is_what_prometheus_reads(has_topics: bool, tmp_path) -> None:
    with Standalone(config={"exposeTopicLevelMetricsInPrometheus": has_topics}) as broker:
        rest = Rest(broker.web_service_url)
        client = quiet_client(broker.service_url, tmp_path)
        for name in (
            "persistent://public/default/t",
            'persistent://public/default/q"\\',
            "non-persistent://public/default/t",
        ):
            consumer = client.subscribe(name, 's"\n')
            publish(client, name, 3)
            consumer.receive(10_000)
        page = samples(rest.get("/metrics").body.decode())
        client.close()
    assert len(page) > 100
    assert {sample.labels["cluster"] for sample in page} == {"standalone"}
    (version,) = [sample for sample in page if sample.name == "pulsar_version_info"]
    assert version.labels["version"] and version.value == 1


def test_metrics_tell_how_long_and_how_large_what_was_published_is(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    for size in (10, 10, 700, 3000, 20_000):
        producer.send(b"x" * size)
    rest.get("proxy-stats/stats")  # those of WebSockets are there, too
    page = samples(rest.get("/metrics").body.decode())
    told = {sample.name: sample.value for sample in page if sample.labels.get("topic") == topic}
    sizes = {
        name.removeprefix("pulsar_entry_size_"): value for name, value in told.items() if "entry_size" in name and value
    }
    stored = rest.get(f"persistent/{namespace}/t/stats").json["storageSize"]
    assert sizes == {"le_128": 2, "le_1_kb": 1, "le_4_kb": 1, "le_100_kb": 1, "count": 5, "sum": stored}
    for name in ("pulsar_storage_write_latency", "pulsar_storage_ledger_write_latency"):
        buckets = {key: value for key, value in told.items() if key.startswith((f"{name}_le_", f"{name}_overflow"))}
        assert len(buckets) == 10
        assert sum(buckets.values()) == told[f"{name}_count"] == 5
        assert told[f"{name}_sum"] > 0
    of_broker = {(sample.name, sample.labels.get("quantile")): sample.value for sample in page}
    assert of_broker["pulsar_broker_publish_latency_count", None] >= 5
    assert 0 < of_broker["pulsar_broker_publish_latency", "0.5"] <= of_broker["pulsar_broker_publish_latency", "1.0"]
    assert of_broker["bookie_journal_JOURNAL_ADD_ENTRY_count", None] >= 5
    assert of_broker["bookie_journal_JOURNAL_SYNC", "0.99"] > 0


def test_metrics_of_storage_are_those_of_one_window(rest: Rest, namespace: str, client) -> None:
    topic = f"persistent://{namespace}/t"
    publish(client, topic, 2)
    path = "/metrics"
    first = rest.get(path).body.decode()
    labels = f'{{cluster="standalone",namespace="{namespace}",topic="{topic}"}}'
    assert f"pulsar_entry_size_count{labels} 2" in first.splitlines()
    # Asked again at once, the same is told: the window is not over.
    assert f"pulsar_entry_size_count{labels} 2" in rest.get(path).body.decode().splitlines()
