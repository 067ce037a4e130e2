"""``/metrics``."""

from __future__ import annotations

import pytest

from geminga import Standalone
from support.rest import EARLIEST, Rest, publish

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
    assert not any("topic=" in line for line in lines)
