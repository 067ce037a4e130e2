"""``geminga dead-letters``: what is shown, and that at least once is asked for."""

from __future__ import annotations

import json
import os
import signal
from threading import Thread  # noqa: TID251  # interrupts a command that waits

import pytest
from typer.testing import CliRunner

from geminga import Standalone
from geminga.admin import blocking as admin
from geminga.app.commands.cli import app_for
from geminga.client import blocking


@pytest.fixture(scope="module")
def broker():
    with Standalone(config={"transactionCoordinatorEnabled": False}) as running:
        yield running


def _run(broker: Standalone, *words: str):
    return CliRunner().invoke(app_for(["dead-letters"]), ["dead-letters", *words, "--url", broker.service_url])


def test_without_transactions_it_is_said_before_anything_is_sent(broker) -> None:
    with blocking.connect(broker.service_url) as client, client.create_producer("t-s-DLQ") as producer:
        producer.send(b"bad", properties={"REAL_TOPIC": "t", "REAL_SUBSCRIPTION": "s", "ORIGIN_MESSAGE_ID": "1:2:-1"})
    found = _run(broker, "list", "t-s-DLQ")
    assert found.stdout.endswith(" of t s 1:2:-1] bad\n")
    found = _run(broker, "redrive", "t-s-DLQ", "--wait", "0.1")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "--at-least-once" in found.stderr
    found = _run(broker, "redrive", "t-s-DLQ", "--wait", "0.1", "--at-least-once", "--json")
    assert json.loads(found.stdout) == {"sent": 1, "refused": 0, "encrypted": 0, "held": 0, "why": ""}


def test_letters_that_their_topic_does_not_take_stay_and_the_command_does_not_say_that_all_is_well(broker) -> None:
    with blocking.connect(broker.service_url) as client, client.create_producer("ended-DLQ") as producer:
        client.create_producer("ended").close()
        with admin.connect(broker.web_service_url) as asked:
            asked.topics.terminate("ended")
        producer.send(b"bad", properties={"REAL_TOPIC": "ended"})
        producer.send(b"good", properties={"REAL_TOPIC": "goes-on"})
    found = _run(broker, "redrive", "ended-DLQ", "--wait", "0.1", "--at-least-once")
    assert found.exit_code == 1
    assert found.stdout.startswith("1 sent back; 1 stays: persistent://public/default/ended: ")


def test_an_interruption_does_not_say_that_nothing_was_sent(broker, interruptible) -> None:
    with blocking.connect(broker.service_url) as client:
        origin = client.subscribe("interrupted", "s")
        with client.create_producer("interrupted-DLQ") as producer:
            producer.send(b"bad", properties={"REAL_TOPIC": "interrupted"})

        def interrupt() -> None:
            origin.receive(30_000)
            os.kill(os.getpid(), signal.SIGINT)

        thread = Thread(target=interrupt)
        thread.start()
        found = _run(broker, "redrive", "interrupted-DLQ", "--wait", "60", "--at-least-once")
        thread.join()
    assert (found.exit_code, found.stdout) == (1, "")
    assert "interrupted" in found.stderr
    assert "nothing" not in found.stderr
