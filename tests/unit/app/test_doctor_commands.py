"""``geminga doctor``: sentences, JSON, and how it ends."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from geminga import Standalone
from geminga.app.commands.cli import app_for


@pytest.fixture(scope="module")
def broker():
    with Standalone() as running:
        yield running


def _run(broker: Standalone, *words: str):
    return CliRunner().invoke(app_for(words), [*words, "--admin-url", broker.web_service_url])


def test_a_topic_without_a_finding_and_one_with(broker) -> None:
    import geminga.admin.blocking
    from geminga.client import blocking

    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        admin.topics.create("orders")
        found = _run(broker, "doctor", "orders")
        assert (found.exit_code, found.stdout) == (0, "persistent://public/default/orders: nothing stands in the way\n")
        admin.subscriptions.create("orders", "billing", "earliest")
    with blocking.connect(broker.service_url) as client, client.create_producer("orders") as producer:
        producer.send(b"x")
    found = _run(broker, "doctor", "orders")
    assert found.exit_code == 1
    assert "  no-consumer (stops): Nobody consumes billing: 1 entries wait." in found.stdout
    found = _run(broker, "doctor", "orders", "billing", "--json")
    (finding,) = json.loads(found.stdout)["persistent://public/default/orders"]
    assert (finding["cause"], finding["severity"], finding["subscription"]) == ("no-consumer", "stops", "billing")
    found = _run(broker, "doctor", "nowhere")
    assert found.exit_code == 1
    assert "nowhere not found" in found.stderr
