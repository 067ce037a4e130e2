"""Processes of ``geminga proxy``: one starts, stops in order, and dies; official clients lose nothing acknowledged."""

from __future__ import annotations

import os
import random
import signal
import threading
import urllib.request
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from support.processes.official import quiet_client
from support.processes.proxy_process import ProxyProcess
from support.stories.crash_load import Consuming, Publishing, drain

pytestmark = [pytest.mark.integration, pytest.mark.long]

KILLS = int(os.environ.get("PROXY_KILLS", "20"))
SEED = int(os.environ.get("PROXY_SEED", "1"))
LOAD_S_MAX = 0.8


def test_it_starts_tells_of_itself_and_stops_in_order(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log") as broker:
        proxy = ProxyProcess(broker, tmp_path).start()
        assert proxy.ready["serviceUrl"] == f"pulsar://127.0.0.1:{proxy.port}"
        with urllib.request.urlopen(f"{proxy.ready['webServiceUrl']}/status.html", timeout=20) as answer:
            assert answer.read() == b"OK"
        client = quiet_client(str(proxy.ready["serviceUrl"]), tmp_path)
        producer = client.create_producer("persistent://public/default/order")
        producer.send(b"x")
        assert proxy.end(signal.SIGTERM) == 0
        assert proxy.start().end(signal.SIGTERM) == 0
        client.close()
        assert "Traceback" not in proxy.log.read_text()


def test_nothing_acknowledged_is_lost_when_proxies_and_the_broker_are_killed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    topic = "persistent://public/default/kills"
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log") as broker:
        proxies = [ProxyProcess(broker, tmp_path).start() for _ in range(2)]
        client = quiet_client(f"pulsar://127.0.0.1:{proxies[0].port},127.0.0.1:{proxies[1].port}", tmp_path)
        client.subscribe(topic, "audit").close()
        publishing, consuming = Publishing(client, topic, batching=True), Consuming(client, topic, "live")
        consuming.start()
        publishing.start()
        try:
            for number in range(KILLS):
                threading.Event().wait(rng.uniform(0.05, LOAD_S_MAX))
                if number % 2:
                    broker.kill()
                    broker.start()
                else:
                    killed = rng.choice(proxies)
                    killed.end(signal.SIGKILL)
                    killed.start()
        finally:
            publishing.stop()
        consuming.wait_for(publishing.acknowledged, timeout_s=60)
        consuming.stop()
        audit = drain(client, topic, "audit", publishing.acknowledged)
        assert publishing.acknowledged
        assert publishing.acknowledged - audit.first == set(), f"seed {SEED}: acknowledged and lost"
        assert consuming.missing(publishing.acknowledged) == set(), f"seed {SEED}: not delivered to the live consumer"
        print(f"{KILLS} kills, {len(publishing.acknowledged)} of {publishing.sent} acknowledged, 0 lost")
        client.close()
        for proxy in proxies:
            assert proxy.end(signal.SIGTERM) == 0
            assert "Traceback" not in proxy.log.read_text()
