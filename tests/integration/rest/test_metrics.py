"""``/metrics``."""

from __future__ import annotations

import pytest

from support.rest import Rest, publish

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
    assert "# TYPE pulsar_in_messages_total counter" in lines
    assert any(line.startswith("process_resident_memory_bytes{") for line in lines)
    assert any(line.startswith("pulsar_active_connections{") for line in lines)
    assert len(set(lines)) == len(lines)
