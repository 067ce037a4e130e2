"""Starting and stopping a real process: clean stop, continuity, the claim on a directory."""

from __future__ import annotations

import pulsar
import pytest
from tools.standalone_process import StandaloneProcess, StartError

from support.processes.official import quiet_client

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/restart"


@pytest.fixture
def process(tmp_path):
    """A process of this test's own, not started."""
    made = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log")
    yield made
    made.kill()


def test_subscription_goes_on_where_it_was_after_a_clean_stop(process, tmp_path) -> None:
    process.start()
    client = quiet_client(process.service_url, tmp_path)
    consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for i in range(20):
        producer.send(b"%d" % i)
    for _ in range(20):
        message = consumer.receive(timeout_millis=10_000)
        if int(message.data()) % 4:
            consumer.acknowledge(message)
    client.close()
    assert process.stop() == 0
    process.start()
    client = quiet_client(process.service_url, tmp_path)
    consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
    assert sorted(int(consumer.receive(timeout_millis=10_000).data()) for _ in range(5)) == [0, 4, 8, 12, 16]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=300)
    client.close()


def test_second_process_on_the_directory_refuses_with_a_sentence(process, tmp_path) -> None:
    process.start()
    second = StandaloneProcess(process.data, log=tmp_path / "second.log")
    with pytest.raises(StartError, match=r"is\s+in\s+use\s+by\s+process"):
        second.start()
    assert process.is_running


def test_clean_stop_ends_with_code_zero_and_says_nothing_alarming(process) -> None:
    process.start()
    assert process.stop() == 0
    assert "Traceback" not in process.log_tail(1000)


def test_unknown_configuration_key_is_a_warning_that_names_it(process) -> None:
    process.settings["noSuchKeyAtAll"] = "1"
    process.start()
    assert "noSuchKeyAtAll" in process.log_tail(1000)


def test_bad_configuration_value_is_an_error_that_names_key_and_value(process) -> None:
    process.settings["maxMessageSize"] = "many"
    with pytest.raises(StartError, match=r"maxMessageSize.*many"):
        process.start()
