"""Topics whose ledgers roll over after a few entries: published to, held, trimmed, and what a source leaves there."""

from __future__ import annotations

import geminga
from geminga.client import ConnectError
from geminga.client.blocking import Client
from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from support.worlds.rest import Rest

#: Ledgers roll over after so many entries.
LEDGER_ENTRIES = 20


def publish(client: Client, topic: str, number: int, first: int = 0, batch: int = 1) -> list[bytes]:
    sent = [b"%d" % index for index in range(first, first + number)]
    with client.create_producer(topic, batching_max_messages=batch) as producer:
        for value in sent:
            producer.send_nowait(value)
        producer.flush()
    return sent


def hold(client: Client, topic: str) -> None:
    """Nothing of the topic is deleted: a subscription of somebody else stands at its beginning."""
    client.subscribe(topic, "keep").close()


def trim(broker: geminga.Standalone, topic: str) -> None:
    """Delete the closed ledgers that no cursor and no retention holds."""
    broker._call(broker._broker().topics[topic].ledger.trimmer.trim())


def subscriptions(broker: geminga.Standalone, topic: str) -> list[str]:
    name = topic.removeprefix("persistent://")
    return Rest(broker.web_service_url).get(f"persistent/{name}/subscriptions").json


def backlog(broker: geminga.Standalone, topic: str, subscription: str) -> int:
    name = topic.removeprefix("persistent://")
    stats = Rest(broker.web_service_url).get(f"persistent/{name}/stats").json
    return stats["subscriptions"][subscription]["msgBacklog"]


def cut_connections(broker: geminga.Standalone) -> None:
    session = session_for(ClientConfiguration(broker.service_url))

    def cut() -> None:
        for connection in list(session.client.pool._connections.values()):
            connection.abort(ConnectError("cut by the test"))

    session.thread.call(cut)
