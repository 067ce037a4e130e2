"""What :mod:`tools.boards.trial` has beside plain load: an entry filter, a resource group, WebSockets, a proxy."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pulsar
from websockets.sync.client import connect

from tools.boards.prometheus import SCRAPE_S
from tools.chaos.cluster import Cluster
from tools.standalone_process import StandaloneProcess

GROUP: Final = "boards"
NAMESPACE: Final = "public/grouped"
SUBSCRIPTION: Final = "filtered"
TOPIC: Final = f"persistent://{NAMESPACE}/judged"
WS_PATH: Final = f"persistent/{NAMESPACE}/spoken"
MESSAGES: Final = 200
WS_MESSAGES: Final = 50
READY_S: Final = 30.0
#: Takes each message whose property ``region`` is ``eu``.
FILTER: Final = """from geminga.entry_filters import ACCEPT, REJECT

def europe(entry):
    return ACCEPT if entry.properties.get("region") == "eu" else REJECT
"""
#: (process, path under ``admin/``, document, method)
Put = Callable[..., None]


def settings(directory: Path) -> dict[str, object]:
    """Those of the brokers; the filter is written to ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "boards_filters.py").write_text(FILTER)
    return {
        "allowOverrideEntryFilters": "true",
        "entryFiltersDirectory": str(directory),
        "webSocketServiceEnabled": "true",
        "resourceUsageTransportPublishIntervalInSecs": 5,
    }


class Proxy:
    """``geminga proxy`` before the brokers of a cluster, until it is closed."""

    def __init__(self, cluster: Cluster, log: Path) -> None:
        broker = cluster.broker
        ports = ",".join(str(each.broker_port) for each in cluster.brokers.values())
        words = [sys.executable, "-m", "geminga", "proxy", "--json", "--port", "0", "--web-port", "0"]
        words += ["--broker", broker.service_url, "--web", broker.web_url]
        words += ["--set", f"brokerProxyAllowedTargetPorts={ports}"]
        with log.open("a") as told:
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=told, text=True)
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline() or "{}")
        if not ready:
            raise RuntimeError(f"the proxy did not start: {log.read_text()}")
        self.service_url = str(ready["serviceUrl"])
        #: Where its page is: ``host:port``.
        self.address = str(ready["webServiceUrl"]).removeprefix("http://")

    def close(self) -> None:
        """End it in order."""
        self._process.terminate()
        self._process.wait(READY_S)


def prepare(broker: StandaloneProcess, put: Put) -> None:
    """A namespace in a resource group with limits that nothing reaches, whose topics are judged by the filter."""
    limits = {"publishRateInMsgs": 100_000, "publishRateInBytes": 100_000_000}
    limits |= {"dispatchRateInMsgs": 100_000, "dispatchRateInBytes": 100_000_000}
    put(broker, f"resourcegroups/{GROUP}", limits)
    put(broker, f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 4}})
    put(broker, f"namespaces/{NAMESPACE}/resourcegroup/{GROUP}", None, method="POST")
    names = {"entryFilterNames": "boards_filters:europe"}
    put(broker, f"namespaces/{NAMESPACE}/entryFilters", names, method="POST")


def through_proxy(proxy: Proxy) -> None:
    """Messages of which half pass the filter, published and consumed through the proxy."""
    client = pulsar.Client(proxy.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(TOPIC, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for index in range(MESSAGES):
        producer.send(b"f" * 500, properties={"region": "eu" if index % 2 else "us"})
    for _ in range(MESSAGES // 2):
        message = consumer.receive(20_000)
        if message.properties()["region"] != "eu":
            raise RuntimeError(f"a message passed that the filter rejects: {message.properties()}")
        consumer.acknowledge(message)
    client.close()


def over_websockets(broker: StandaloneProcess, count: int) -> None:
    """``count`` times as many messages as the first time, in and out over a WebSocket, each acknowledged."""
    place = f"ws://127.0.0.1:{broker.web_port}/ws/v2"
    payload = base64.b64encode(b"w" * 300).decode()
    with ExitStack() as stack:
        consumer = stack.enter_context(connect(f"{place}/consumer/{WS_PATH}/s"))
        producer = stack.enter_context(connect(f"{place}/producer/{WS_PATH}"))
        for _ in range(WS_MESSAGES * count):
            producer.send(json.dumps({"payload": payload, "properties": {"region": "eu"}}))
            receipt = json.loads(producer.recv(READY_S))
            if receipt["result"] != "ok":
                raise RuntimeError(f"a WebSocket's message was refused: {receipt}")
            got = json.loads(consumer.recv(READY_S))
            consumer.send(json.dumps({"messageId": got["messageId"]}))
        # However quick that was, a scrape sees that they are open.
        time.sleep(2 * SCRAPE_S)
