"""PRODUCER and CLOSE_PRODUCER: what of a producer's options and of its past is in them."""

from __future__ import annotations

from geminga.client._api.options import ProducerAccessMode, ProducerOptions
from geminga.client._producing import requests
from geminga.wire._generated import pulsar_api_pb2 as pb

TOPIC = "persistent://public/default/t"


def producer(options: ProducerOptions, **past: object) -> pb.CommandProducer:
    given = {"name": "", "epoch": 0, "topic_epoch": None, "is_encrypted": False, "schema": None, **past}
    return requests.create(TOPIC, 3, 9, options, **given).producer


def test_plain_producer_names_nothing_that_the_broker_picks() -> None:
    command = producer(ProducerOptions())
    assert (command.topic, command.producer_id, command.request_id, command.epoch) == (TOPIC, 3, 9, 0)
    for name in ("producer_name", "topic_epoch", "initial_subscription_name", "schema"):
        assert not command.HasField(name), name
    assert not command.user_provided_producer_name
    assert not command.encrypted
    assert command.producer_access_mode == pb.Shared


def test_returning_producer_says_its_name_and_epochs() -> None:
    options = ProducerOptions(access_mode=ProducerAccessMode.Exclusive)
    command = producer(options, name="granted", epoch=2, topic_epoch=0, is_encrypted=True)
    assert (command.producer_name, command.epoch, command.topic_epoch) == ("granted", 2, 0)
    assert command.HasField("topic_epoch")
    assert not command.user_provided_producer_name  # the broker granted it
    assert command.encrypted
    assert command.producer_access_mode == pb.Exclusive


def test_options_are_in_it() -> None:
    options = ProducerOptions(
        producer_name="mine", initial_subscription_name="dlq", properties={"team": "red", "site": "x"}
    )
    schema = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
    command = producer(options, name="mine", schema=schema)
    assert command.user_provided_producer_name
    assert command.initial_subscription_name == "dlq"
    assert [(entry.key, entry.value) for entry in command.metadata] == [("team", "red"), ("site", "x")]
    assert command.schema == schema


def test_close_names_the_producer() -> None:
    command = requests.close(3, 9)
    assert command.type == pb.BaseCommand.CLOSE_PRODUCER
    assert (command.close_producer.producer_id, command.close_producer.request_id) == (3, 9)
