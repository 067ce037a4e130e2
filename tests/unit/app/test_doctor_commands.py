"""``geminga doctor`` and ``backlog``: sentences, tables, JSON, and how they end."""

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


def test_who_asks_for_a_topic_and_the_configuration_or_neither_is_told_what_is_expected(broker) -> None:
    for words in (("doctor",), ("doctor", "orders", "--configuration")):
        found = _run(broker, *words)
        assert (found.exit_code, "expected a topic, or --configuration" in found.stderr) == (1, True)
    found = _run(broker, "doctor", "--configuration")
    assert found.exit_code == 1
    assert "No topic keeps the configuration alike here" in found.stderr


def test_backlogs_are_shown_with_their_holders(broker) -> None:
    import geminga.admin.blocking
    from geminga.client import blocking

    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        admin.namespaces.create("public/held")
        for topic in ("a", "b", "empty"):
            admin.topics.create(f"public/held/{topic}")
            admin.subscriptions.create(f"public/held/{topic}", "s", "earliest")
    with blocking.connect(broker.service_url) as client:
        for topic, count in (("a", 1), ("b", 2)):
            with client.create_producer(f"public/held/{topic}", batching_enabled=False) as producer:
                for _ in range(count):
                    producer.send(b"x")
    lines = _run(broker, "backlog", "public/held").stdout.splitlines()
    assert lines[0].split()[:2] == ["ENTRIES", "GROWTH/S"]
    assert [line.split()[0] for line in lines[1:]] == ["2", "1"]
    assert lines[1].split()[-2:] == ["s", "persistent://public/held/b"]
    found = _run(broker, "backlog", "-n", "1", "--json")
    (row,) = json.loads(found.stdout)["backlogs"]
    assert (row["topic"], row["entries"], row["consumers"]) == ("persistent://public/held/b", 2, 0)
    assert row["oldest_ms"] > 0
    found = _run(broker, "backlog", "public/nowhere")
    assert found.exit_code == 1
    assert "404" in found.stderr


def test_names_of_others_are_shown_and_not_obeyed(broker) -> None:
    import geminga.admin.blocking
    from geminga.client import blocking

    name, shown = "s\x1b[2J\x07", "s\\u001b[2J\\u0007"
    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        admin.namespaces.create("public/hostile")
    # REST takes no such name, the binary protocol does.
    with blocking.connect(broker.service_url) as client, client.create_producer("public/hostile/a") as producer:
        client.subscribe("public/hostile/a", name).close()
        producer.send(b"x")
    assert f"Nobody consumes {shown}: 1 entries wait." in _run(broker, "doctor", "public/hostile/a").stdout
    assert shown in _run(broker, "backlog", "public/hostile").stdout
    (row,) = json.loads(_run(broker, "backlog", "public/hostile", "--json").stdout)["backlogs"]
    assert row["subscription"] == name
