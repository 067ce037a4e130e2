"""The sink's options: defaults, what each takes, and the sentence that a mistake gets."""

from __future__ import annotations

import pytest

from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.option_values import OptionError
from geminga.spark.sink_rules.sink_options import Guarantee, ValueSchema, full_topic, sink_options

URL = {"service.url": "pulsar://h:6650"}


def test_defaults_are_those_of_the_documentation() -> None:
    options = sink_options({**URL, "topic": "t"})
    assert options.client == ClientConfiguration("pulsar://h:6650")
    assert options.topic == "persistent://public/default/t"
    assert (options.guarantee, options.transaction_timeout_ms, options.lost_batch) == (None, 900_000, None)
    assert (options.task_bytes_max, options.attempt_timeout_ms, options.value_schema) == (1 << 30, 120_000, None)
    producer = options.producer
    assert (producer.compression, producer.batch_messages_max, producer.batch_bytes_max) == ("NONE", 1000, 128 << 10)
    assert (producer.send_timeout_ms, producer.is_murmur3) == (120_000, False)


def test_every_option_is_read_whatever_its_case() -> None:
    options = sink_options(
        {
            "SERVICE.URL": "pulsar://h:6650",
            "GUARANTEE": "Effectively-Once",
            "topic": "a/b/c",
            "schematype": "JSON",
            "sinkname": "s",
            "txnappid": "app",
            "txnversion": "7",
            "orderedby": "b, a",
            "commitstatetopic": "x/y/z",
            "maxtaskbytes": "64m",
            "attempttimeoutms": "5s",
            "pulsar.producer.compressiontype": "lz4",
            "pulsar.producer.batchingmaxmessages": "5",
            "pulsar.producer.batchingmaxbytes": "1k",
            "pulsar.producer.sendtimeoutms": "0",
            "pulsar.producer.hashingscheme": "Murmur3_32Hash",
            "checkpointlocation": "anywhere",
            "admin.url": "http://h:8080",
        }
    )
    assert (options.guarantee, options.topic) == (Guarantee.EFFECTIVELY_ONCE, "persistent://a/b/c")
    assert (options.value_schema, options.sink_name, options.application_id) == (ValueSchema.JSON, "s", "app")
    assert (options.version, options.ordered_by, options.plan_topic) == (7, ("b", "a"), "persistent://x/y/z")
    assert (options.task_bytes_max, options.attempt_timeout_ms) == (64 << 20, 5000)
    producer = options.producer
    assert (producer.compression, producer.batch_messages_max, producer.batch_bytes_max) == ("LZ4", 5, 1024)
    assert (producer.send_timeout_ms, producer.is_murmur3) == (0, True)


def test_batching_disabled_is_one_message_a_batch() -> None:
    assert sink_options({**URL, "pulsar.producer.batchingEnabled": "false"}).producer.batch_messages_max == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"txnTimeoutMs": "999"}, "expected at least 1000 milliseconds"),
        ({"lostBatch": "7"}, "expected redo:<batch> or skip:<batch>"),
        ({"lostBatch": "redo:x"}, "expected redo:<batch> or skip:<batch>"),
        ({"guarantee": "effectively-once", "lostBatch": "redo:7"}, "lostBatch needs guarantee=exactly-once"),
        ({"guarantee": "exactly-once", "topic": "non-persistent://a/b/c"}, "exactly-once needs persistent topics"),
        ({"topic": "non-persistent://a/b/c"}, "choose guarantee=at-least-once"),
        ({"guarantee": "once"}, "expected one of at-least-once, effectively-once"),
        ({"pulsar.producer.encryptionKeys": "a"}, "needs pulsar.producer.cryptoPublicKeyPath"),
        ({"pulsar.producer.chunkingEnabled": "perhaps"}, "expected true or false"),
        ({"topics": "a"}, "use topic, or a column __topic"),
        ({"startingOffsets": "earliest"}, "not an option of this sink"),
        ({"pulsar.producer.compresionType": "LZ4"}, "did you mean pulsar.producer.compressionType"),
        ({"pulsar.producer.producerName": "me"}, "the sink names its producers"),
        ({"pulsar.producer.maxPendingMessages": "9"}, "memoryLimitBytes"),
        ({"pulsar.producer.batchingMaxMessages": "0"}, "1 or above"),
        ({"pulsar.client.noSuch": "1"}, "not known"),
        ({"path": "/tmp/x"}, "take no path"),
        ({"topic": "a/b"}, "topic: invalid topic name"),
        ({"topic": " "}, "topic is empty"),
        ({"orderedBy": "a,a"}, "twice"),
        ({"orderedBy": "a"}, "orderedBy needs guarantee=effectively-once"),
        ({"guarantee": "at-least-once", "commitStateTopic": "a"}, "commitStateTopic needs guarantee=exactly-once"),
        ({"guarantee": "at-least-once", "txnAppId": "a", "txnVersion": "1"}, "txnVersion needs guarantee=exactly"),
        ({"guarantee": "effectively-once", "txnVersion": "1"}, "txnVersion needs txnAppId"),
        ({"guarantee": "effectively-once", "txnAppId": "a", "txnVersion": str(1 << 31)}, "up to 2147483647"),
        ({"guarantee": "effectively-once", "topic": "non-persistent://a/b/c"}, "needs persistent topics"),
        ({"sinkName": "a:b"}, "no colon"),
        ({"schemaType": "protobuf"}, "schemaType"),
    ],
)
def test_mistake_gets_a_sentence_that_names_it(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        sink_options({**URL, **given})


def test_missing_service_url_is_named() -> None:
    with pytest.raises(OptionError, match=r"service\.url"):
        sink_options({"topic": "t"})


def test_short_topic_name_becomes_the_full_one() -> None:
    assert full_topic(" a/b/c ", "x") == "persistent://a/b/c"
