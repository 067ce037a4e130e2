"""Two clusters, each a real process: a consumer that fails over goes on where it was, and loses nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import cast

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import ConsumerType, blocking
from integration.test_geo_replication import NAMES, TOPICS, ask, clusters, received

pytestmark = pytest.mark.integration

STATUS = f"{TOPICS}/t/subscription/s/replicatedSubscriptionStatus"
NAME = "persistent://public/default/t"
#: Where a consumer is told every tenth of a second, not every second.
SETTINGS = {"replicatedSubscriptionsSnapshotFrequencyMillis": 100}


def stats(broker: StandaloneProcess) -> dict[str, object]:
    """Of the subscription; empty: it is not there."""
    status, text = ask(broker, "GET", f"{TOPICS}/t/stats")
    if status != 200:
        return {}
    return cast("dict[str, object]", json.loads(text)["subscriptions"].get("s", {}))


def wait_caught_up(broker: StandaloneProcess, most: int = 0) -> dict[str, object]:
    """Until the subscription is there and has no backlog; ``most``: what its markers may count for."""
    found = stats(broker)
    while int(cast("int", found.get("msgBacklog", most + 1))) > most:
        found = stats(broker)
    return found


def fails_over(
    brokers: dict[str, StandaloneProcess], first: str, then: str, count: int, most: dict[str, int] | None = None
) -> None:
    """A consumer of ``first`` acknowledges all there is; one of ``then`` gets what comes later.

    ``most``: entries of a cluster's that count as backlog, or are seen again; Apache counts markers.
    """
    slack = dict.fromkeys(NAMES, 0) | (most or {})
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(blocking.connect(brokers[name].service_url)) for name in NAMES}
        consumer = clients[first].subscribe(
            "t", "s", consumer_type=ConsumerType.Shared, replicate_subscription_state_enabled=True
        )
        producers = {name: clients[name].create_producer("t", batching_enabled=False) for name in NAMES}
        sent = [f"{name} {number}" for number in range(count) for name in NAMES]
        for text in sent:
            producers[text.partition(" ")[0]].send(text.encode())
        assert sorted(received(consumer, 2 * count)) == sorted(sent)
        stored = wait_caught_up(brokers[then], slack[then])
        assert (stored["isReplicated"], stored["replicated"]) == (True, True)
        # Neither side has a message that it has not acknowledged; markers are none.
        wait_caught_up(brokers[first], slack[first])
        consumer.close()
        rest = [f"{then} rest {number}" for number in range(10)]
        for text in rest:
            producers[then].send(text.encode())
        consumer = clients[then].subscribe("t", "s", consumer_type=ConsumerType.Shared)
        found: list[str] = []
        while not set(rest) <= set(found):
            message = consumer.receive(30_000)
            consumer.acknowledge(message)
            found.append(message.data().decode())
        assert set(found) <= {*rest, *sent}
        assert len(found) <= 10 + slack[then]
        reader = clients[then].create_reader("t", start_message_id=consumer.get_last_message_id())
        assert not reader.has_message_available()
        consumer.unsubscribe()
    assert ask(brokers[first], "DELETE", f"{TOPICS}/t/subscription/s")[0] == 204


def test_a_consumer_that_fails_over_goes_on_where_it_was(tmp_path: Path) -> None:
    with clusters(tmp_path, SETTINGS) as brokers:
        for first, then in (NAMES, NAMES[::-1]):
            fails_over(brokers, first, then, 50)
        assert ask(brokers["east"], "PUT", f"{TOPICS}/t/subscription/s?replicated=true")[0] == 204
        assert json.loads(ask(brokers["east"], "GET", STATUS)[1]) == {NAME: True}
        assert ask(brokers["east"], "POST", STATUS, False)[0] == 204
        assert json.loads(ask(brokers["east"], "GET", STATUS)[1]) == {NAME: False}
        metrics = ask(brokers["east"], "GET", "/metrics")[1]
        assert 'pulsar_replicated_subscriptions_timedout_snapshots_total{cluster="east"} 0' in metrics
