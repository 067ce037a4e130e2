"""The query of a socket's URL: Pulsar's names, defaults and bounds."""

from __future__ import annotations

import pytest

from geminga.broker.websocket.core.parameters import (
    PENDING_MESSAGES_MAX,
    TOPICS_MAX,
    ParameterError,
    consumer_parameters,
    producer_parameters,
    reader_parameters,
    topics_parameters,
)


def test_producer_has_pulsars_defaults() -> None:
    found = producer_parameters({"token": "x", "unknown": "1"})
    assert found.send_timeout_ms == 30_000
    assert (found.batching, found.batch_messages_max, found.batch_delay_ms) == (False, 1000, 10)
    assert (found.routing_mode, found.compression, found.hashing_scheme) == (
        "SinglePartition",
        "NONE",
        "JavaStringHash",
    )
    assert (found.pending_messages_max, found.name, found.initial_sequence_id) == (1000, "", None)


def test_producer_is_as_it_is_told() -> None:
    found = producer_parameters(
        {
            "sendTimeoutMillis": "5",
            "batchingEnabled": "TRUE",
            "batchingMaxMessages": "7",
            "batchingMaxPublishDelay": "3",
            "maxPendingMessages": "999999",
            "messageRoutingMode": "RoundRobinPartition",
            "compressionType": "ZSTD",
            "producerName": "p",
            "initialSequenceId": "-1",
            "hashingScheme": "Murmur3_32Hash",
        }
    )
    assert found == (5, True, 7, 3, PENDING_MESSAGES_MAX, "RoundRobinPartition", "ZSTD", "p", -1, "Murmur3_32Hash")


@pytest.mark.parametrize(
    "query",
    [
        {"sendTimeoutMillis": "-1"},
        {"sendTimeoutMillis": "9" * 40},
        {"batchingMaxMessages": "0"},
        {"maxPendingMessages": "1.5"},
        {"batchingEnabled": "yes"},
        {"initialSequenceId": str(2**63 - 1)},
        {"initialSequenceId": "٣"},
        {"compressionType": "lz4"},
        {"hashingScheme": "md5"},
        {"messageRoutingMode": "Best"},
        {"producerName": "pulsar.repl.east-->west"},
        {"encryptionKeys": "k"},
    ],
)
def test_producer_refuses_what_can_not_be_by_name(query: dict[str, str]) -> None:
    with pytest.raises(ParameterError) as refused:
        producer_parameters(query)
    assert next(iter(query)) in str(refused.value)
    assert refused.value.http_status == 400


def test_consumer_has_pulsars_defaults() -> None:
    found = consumer_parameters({})
    assert (found.subscription_type, found.is_durable, found.receiver_queue_size) == ("Exclusive", True, 1000)
    assert (found.ack_timeout_ms, found.negative_ack_delay_ms, found.redeliveries_max) == (0, None, 0)
    assert (found.pull_mode, found.crypto_failure_action, found.priority_level) == (False, "FAIL", 0)


def test_consumer_is_as_it_is_told() -> None:
    found = consumer_parameters(
        {
            "ackTimeoutMillis": "1000",
            "subscriptionType": "Key_Shared",
            "subscriptionMode": "NonDurable",
            "receiverQueueSize": "5000",
            "consumerName": "c",
            "priorityLevel": "2",
            "negativeAckRedeliveryDelay": "0",
            "maxRedeliverCount": "3",
            "deadLetterTopic": "letters",
            "cryptoFailureAction": "CONSUME",
            "pullMode": "true",
        }
    )
    assert found == (1000, "Key_Shared", False, 1000, "c", 2, 0, 3, "letters", "CONSUME", True)


def test_a_queue_of_nothing_lets_one_message_be_out() -> None:
    assert consumer_parameters({"receiverQueueSize": "0"}).receiver_queue_size == 1
    assert reader_parameters({"receiverQueueSize": "0"}).receiver_queue_size == 1


@pytest.mark.parametrize(
    "query",
    [
        {"ackTimeoutMillis": "999"},
        {"subscriptionType": "shared"},
        {"subscriptionMode": "Durably"},
        {"cryptoFailureAction": "SKIP"},
        {"maxRedeliverCount": "0", "subscriptionType": "Shared"},
        {"deadLetterTopic": "x", "subscriptionType": "Shared"},
        {"maxRedeliverCount": "3"},
        {"priorityLevel": "-1"},
        {"pullMode": "1"},
    ],
)
def test_consumer_refuses_what_can_not_be(query: dict[str, str]) -> None:
    with pytest.raises(ParameterError, match="Invalid query params"):
        consumer_parameters(query)


def test_reader_begins_at_an_end_or_behind_an_id() -> None:
    assert reader_parameters({}).start == "latest"
    assert reader_parameters({"messageId": "earliest"}).start == "earliest"
    # A plus sign that nobody encoded is a space in a query.
    assert reader_parameters({"messageId": "+/+A".replace("+", " ")}).start == b"\xfb\xff\x80"
    with pytest.raises(ParameterError, match="messageId"):
        reader_parameters({"messageId": "no id"})


def test_several_topics_are_named_or_a_pattern() -> None:
    assert topics_parameters({"topics": " a, b,a,"}) == (["a", "b"], "")
    assert topics_parameters({"topicsPattern": "a.*"}) == ((), "a.*")
    most = ",".join(map(str, range(TOPICS_MAX)))
    assert len(topics_parameters({"topics": most}).topics) == TOPICS_MAX
    for query in ({}, {"topics": "a", "topicsPattern": "b"}, {"topics": ","}, {"topics": f"{most},more"}):
        with pytest.raises(ParameterError):
            topics_parameters(query)
