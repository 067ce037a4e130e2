"""Pulsar's WebSocket API with a public client: the examples of Pulsar's page, its parameters, and what is refused."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import create_connection
from typing import Any

import pulsar
import pytest
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect
from websockets.uri import parse_uri

import geminga.client
from geminga import Standalone
from support.house.signing import pem_files
from support.house.waiting import until
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

WAIT_S = 10.0

Opens = Callable[..., ClientConnection]


@pytest.fixture
def topic(namespace: str) -> str:
    return f"persistent/{namespace}/t"


@pytest.fixture
def opened(broker: Standalone) -> Iterator[Opens]:
    """Opens sockets that close with the test."""
    with ExitStack() as stack:

        def open_one(path: str, **options: Any) -> ClientConnection:
            return stack.enter_context(connect(f"ws://127.0.0.1:{broker.web_port}/ws/{path}", **options))

        yield open_one


def told(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(timeout=WAIT_S))
    return found


def tell(socket: ClientConnection, **fields: Any) -> None:
    socket.send(json.dumps(fields))


def text64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def published(producer: ClientConnection, text: str, **fields: Any) -> dict[str, Any]:
    tell(producer, payload=text64(text), **fields)
    answer = told(producer)
    assert answer["result"] == "ok", answer
    return answer


def payload_of(message: dict[str, Any]) -> str:
    return base64.b64decode(message["payload"]).decode()


def test_examples_of_pulsars_page_work(opened: Opens, topic: str) -> None:
    consumer = opened(f"v2/consumer/{topic}/my-sub")
    reader = opened(f"v2/reader/{topic}")
    producer = opened(f"v2/producer/{topic}")
    tell(producer, payload="SGVsbG8gV29ybGQ=", properties={"key1": "value1", "key2": "value2"}, context="1")
    stored = told(producer)
    assert stored["result"] == "ok"
    assert stored["context"] == "1"
    for socket in (consumer, reader):
        message = told(socket)
        assert payload_of(message) == "Hello World"
        assert message["properties"] == {"key1": "value1", "key2": "value2"}
        assert message["messageId"] == stored["messageId"]
        assert message["redeliveryCount"] == 0
        assert message["publishTime"].endswith("Z")
        assert "key" not in message
        tell(socket, messageId=message["messageId"])
        tell(socket, type="isEndOfTopic")
        assert told(socket) == {"endOfTopic": False}


def test_message_has_what_its_producer_gave_it_for_every_client(
    opened: Opens, broker: Standalone, topic: str, client: pulsar.Client
) -> None:
    official = client.subscribe(topic.replace("/", "://", 1), "official")
    consumer = opened(f"consumer/{topic}/s")
    producer = opened(f"producer/{topic}?compressionType=LZ4&producerName=mine&initialSequenceId=41")
    fields = {"key": "k", "eventTime": "2021-10-29T16:01:38.967-07:00", "properties": {"n": 1}}
    published(producer, "é", **fields)
    message = told(consumer)
    assert (message["key"], message["eventTime"], message["properties"]) == (
        "k",
        "2021-10-29T23:01:38.967Z",
        {"n": "1"},
    )
    received = official.receive(10_000)
    assert received.data().decode() == "é"
    assert received.partition_key() == "k"
    assert received.event_timestamp() == 1635548498967
    assert received.producer_name() == "mine"
    own = Rest(broker.web_service_url).get(f"{topic}/stats").json["publishers"]
    assert [one["producerName"] for one in own] == ["mine"]


def test_wrong_frames_of_producers_are_answered_and_the_socket_goes_on(opened: Opens, topic: str) -> None:
    producer = opened(f"v2/producer/{topic}")
    for frame, code, context in [
        ("{", 3, None),
        ("[]", 3, None),
        ('{"payload":"%%%","context":"c"}', 7, "c"),
        ('{"context":"c"}', 7, "c"),
        ('{"payload":"","eventTime":"yesterday","context":"c"}', 7, "c"),
        ('{"payload":"","deliverAt":-5,"context":"c"}', 3, "c"),
        ('{"payload":"","properties":[1],"context":"c"}', 3, "c"),
    ]:
        producer.send(frame)
        answer = told(producer)
        assert answer["result"] == f"send-error:{code}", (frame, answer)
        assert answer["errorMsg"]
        assert answer.get("context") == context
    published(producer, "after all")


def test_pushed_messages_stop_at_the_queue_size_until_some_are_acknowledged(opened: Opens, topic: str) -> None:
    consumer = opened(f"v2/consumer/{topic}/s?receiverQueueSize=2&subscriptionType=Shared")
    producer = opened(f"v2/producer/{topic}")
    for number in range(4):
        published(producer, str(number))
    first, second = told(consumer), told(consumer)
    tell(consumer, type="isEndOfTopic")
    assert told(consumer) == {"endOfTopic": False}  # and no third message before
    # Once is once, however often it is said.
    for _ in range(3):
        tell(consumer, messageId=first["messageId"])
    assert payload_of(told(consumer)) == "2"
    tell(consumer, type="isEndOfTopic")
    assert told(consumer) == {"endOfTopic": False}
    tell(consumer, messageId=second["messageId"])
    assert payload_of(told(consumer)) == "3"


def test_pulled_messages_come_as_they_are_permitted_and_are_acknowledged_elsewhere(opened: Opens, topic: str) -> None:
    path = f"v2/consumer/{topic}/s?pullMode=true&subscriptionType=Shared"
    consumer = opened(path)
    producer = opened(f"v2/producer/{topic}")
    tell(consumer, type="permit", permitMessages=2)
    for number in range(3):
        published(producer, str(number))
    messages = [told(consumer), told(consumer)]
    tell(consumer, type="isEndOfTopic")
    assert told(consumer) == {"endOfTopic": False}
    other = opened(path)
    for message in messages:
        tell(other, messageId=message["messageId"])
    for socket in (other, consumer):
        socket.close()
    last = opened(path)
    tell(last, type="permit", permitMessages=9)
    assert payload_of(told(last)) == "2"


def test_negative_acknowledgment_brings_a_message_again(opened: Opens, topic: str) -> None:
    consumer = opened(f"v2/consumer/{topic}/s?subscriptionType=Shared&negativeAckRedeliveryDelay=100")
    producer = opened(f"v2/producer/{topic}")
    published(producer, "again")
    message = told(consumer)
    tell(consumer, type="negativeAcknowledge", messageId=message["messageId"])
    again = told(consumer)
    assert again["messageId"] == message["messageId"]
    assert again["redeliveryCount"] == 1


def test_acknowledged_messages_of_a_batch_do_not_come_again(opened: Opens, topic: str, client: pulsar.Client) -> None:
    path = f"v2/consumer/{topic}/s?subscriptionType=Shared"
    consumer = opened(path)
    official = client.create_producer(
        topic.replace("/", "://", 1), batching_enabled=True, batching_max_publish_delay_ms=1000
    )
    for number in range(10):
        official.send_async(str(number).encode(), None)
    official.flush()
    messages = [told(consumer) for _ in range(10)]
    for message in messages[::2]:
        tell(consumer, messageId=message["messageId"])
    consumer.close()
    again = opened(path)
    assert sorted(payload_of(told(again)) for _ in range(5)) == ["1", "3", "5", "7", "9"]
    tell(again, type="isEndOfTopic")
    assert told(again) == {"endOfTopic": False}


def test_messages_sent_as_a_batch_are_answered_one_by_one(opened: Opens, topic: str) -> None:
    producer = opened(f"v2/producer/{topic}?batchingEnabled=true&batchingMaxPublishDelay=50&batchingMaxMessages=100")
    for number in range(20):
        tell(producer, payload=text64(str(number)), context=str(number))
    answers = [told(producer) for _ in range(20)]
    assert [answer["context"] for answer in answers] == [str(number) for number in range(20)]
    ids = [geminga.client.MessageId.deserialize(base64.b64decode(answer["messageId"])) for answer in answers]
    assert len({one.entry_id() for one in ids}) < 20
    assert len(set(ids)) == 20


@pytest.mark.parametrize("text", ["{", "[]", '{"type": []}'])
def test_reader_that_says_what_nobody_understands_is_closed_with_a_reason(opened: Opens, topic: str, text: str) -> None:
    reader = opened(f"v2/reader/{topic}")
    reader.send(text)
    with pytest.raises(ConnectionClosed) as closed:
        reader.recv(timeout=10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4003
    assert closed.value.rcvd.reason.count("Failed to de-serialize from JSON: ") == 1


def test_end_of_topic_is_told_once_everything_was_delivered(opened: Opens, broker: Standalone, topic: str) -> None:
    consumer = opened(f"v2/consumer/{topic}/s")
    reader = opened(f"v2/reader/{topic}")
    published(opened(f"v2/producer/{topic}"), "last")
    Rest(broker.web_service_url).post(f"{topic}/terminate")
    for socket in (consumer, reader):
        tell(socket, messageId=told(socket)["messageId"])
        until(lambda socket=socket: is_at_end(socket), "the topic's end")


def is_at_end(socket: ClientConnection) -> bool:
    tell(socket, type="isEndOfTopic")
    return bool(told(socket)["endOfTopic"])


def test_readers_begin_where_they_are_told(opened: Opens, topic: str) -> None:
    producer = opened(f"v2/producer/{topic}")
    first = published(producer, "0")["messageId"]
    published(producer, "1")
    assert payload_of(told(opened(f"v2/reader/{topic}?messageId=earliest"))) == "0"
    assert payload_of(told(opened(f"v2/reader/{topic}?messageId={urllib.request.quote(first, safe='')}"))) == "1"
    newest = opened(f"v2/reader/{topic}?readerName=r&receiverQueueSize=1")
    published(producer, "2")
    published(producer, "3")
    assert payload_of(told(newest)) == "2"
    tell(newest, messageId="any")
    assert payload_of(told(newest)) == "3"


def test_several_topics_and_patterns_are_one_consumer(opened: Opens, namespace: str) -> None:
    names = [f"persistent://{namespace}/{name}" for name in ("a", "b")]
    for name in names:
        published(opened(f"v2/producer/{name.replace('://', '/')}"), "before")
    several = opened(f"v3/consumer/s?topics={','.join(names)}&subscriptionType=Shared")
    pattern = opened(f"v3/consumer/p?topicsPattern=persistent://{namespace}/[ab]")
    for name in names:
        published(opened(f"v2/producer/{name.replace('://', '/')}"), name)
    for socket in (several, pattern):
        messages = [told(socket), told(socket)]
        assert sorted(map(payload_of, messages)) == names
        for message in messages:
            tell(socket, messageId=message["messageId"])
        tell(socket, type="isEndOfTopic")
        assert told(socket) == {"endOfTopic": False}


def test_partitioned_topics_are_published_to_and_consumed(opened: Opens, broker: Standalone, topic: str) -> None:
    Rest(broker.web_service_url).put(f"{topic}/partitions", 3)
    consumer = opened(f"v2/consumer/{topic}/s?subscriptionType=Shared")
    producer = opened(f"v2/producer/{topic}?messageRoutingMode=RoundRobinPartition")
    for number in range(6):
        published(producer, str(number))
    messages = [told(consumer) for _ in range(6)]
    for message in messages:
        tell(consumer, messageId=message["messageId"])
    consumer.close()
    again = opened(f"v2/consumer/{topic}/s?subscriptionType=Shared")
    published(producer, "new")
    assert payload_of(told(again)) == "new"


def test_what_can_not_be_is_refused_before_there_is_a_socket(opened: Opens, broker: Standalone, topic: str) -> None:
    holder = opened(f"v2/consumer/{topic}/exclusive")
    for path, status, reason in [
        (f"v2/producer/{topic}?compressionType=lzma", 400, "compressionType"),
        (f"v2/producer/{topic}?sendTimeoutMillis=-1", 400, "sendTimeoutMillis"),
        (f"v2/producer/{topic}?encryptionKeys=a", 400, "encryptionKeys"),
        (f"v2/consumer/{topic}/s?ackTimeoutMillis=5", 400, "ackTimeoutMillis"),
        (f"v2/consumer/{topic}/s?maxRedeliverCount=0", 400, "MaxRedeliverCount"),
        (f"v2/consumer/{topic}/exclusive", 409, "Exclusive"),
        (f"v2/reader/{topic}?messageId=%25", 400, "messageId"),
        ("v3/consumer/s", 400, "Should set topics"),
        ("v3/consumer/s?topicsPattern=(a*)*(?=b)", 400, "RE2"),
        ("v3/consumer/s?topics=a&topicsPattern=b", 400, "Topics must be null"),
        ("v2/producer/persistent/nobody/nothing/t", 404, ""),
        ("producer/persistent/prop/cluster/ns/t", 400, "Pulsar 1"),
    ]:
        with pytest.raises(InvalidStatus) as refused:
            opened(path)
        response = refused.value.response
        assert response.status_code == status, (path, response)
        assert reason in json.loads(response.body)["reason"], (path, response.body)
    holder.close()


def test_a_plain_question_is_told_what_is_expected(broker: Standalone, topic: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{broker.web_port}/ws/v2/producer/{topic}")
    assert refused.value.code == 426
    with refused.value:
        assert "WebSocket" in json.loads(refused.value.read())["reason"]


def test_foreign_pages_are_refused(opened: Opens, topic: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        opened(f"v2/producer/{topic}", origin="https://example.org")
    assert refused.value.response.status_code == 403


def test_wrong_commands_of_consumers_end_the_socket_with_a_reason(opened: Opens, topic: str) -> None:
    for frame in ("{", "{}", '{"type":"permit"}', '{"messageId":"%"}', '{"messageId":"AAAA"}'):
        consumer = opened(f"v2/consumer/{topic}/s?subscriptionType=Shared")
        consumer.send(frame)
        with pytest.raises(ConnectionClosed) as closed:
            consumer.recv(timeout=WAIT_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4003, frame
        assert closed.value.rcvd.reason.startswith("Failed to de-serialize from JSON")


def test_unsubscribing_takes_the_subscription_and_ends_the_socket(
    opened: Opens, broker: Standalone, topic: str
) -> None:
    consumer = opened(f"v2/consumer/{topic}/gone")
    tell(consumer, type="unsubscribe")
    with pytest.raises(ConnectionClosed) as closed:
        consumer.recv(timeout=WAIT_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000
    assert Rest(broker.web_service_url).get(f"{topic}/subscriptions").json == []


def test_dead_letters_go_where_the_socket_says(opened: Opens, namespace: str, topic: str) -> None:
    letters = opened(f"v2/consumer/persistent/{namespace}/letters/s")
    query = f"subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic=persistent://{namespace}/letters"
    consumer = opened(f"v2/consumer/{topic}/s?{query}&negativeAckRedeliveryDelay=50")
    published(opened(f"v2/producer/{topic}"), "poison")
    for _ in range(2):
        tell(consumer, type="negativeAcknowledge", messageId=told(consumer)["messageId"])
    assert payload_of(told(letters)) == "poison"


def test_encrypted_messages_are_handed_on_as_they_came_where_that_is_asked_for(
    opened: Opens, topic: str, client: pulsar.Client, tmp_path: Path
) -> None:
    public, _ = pem_files(tmp_path)
    consumer = opened(f"v2/consumer/{topic}/s?cryptoFailureAction=CONSUME")
    official = client.create_producer(
        topic.replace("/", "://", 1),
        encryption_key="key-1",
        crypto_key_reader=pulsar.CryptoKeyReader(public, ""),
        compression_type=pulsar.CompressionType.LZ4,
    )
    official.send(b"secret")
    message = told(consumer)
    assert b"secret" not in base64.b64decode(message["payload"])
    context = message["encryptionContext"]
    assert list(context["keys"]) == ["key-1"]
    assert context["compressionType"] == "LZ4"
    assert context["uncompressedMessageSize"] == 6
    assert len(base64.b64decode(context["param"])) == 12


def test_statistics_tell_of_sockets(opened: Opens, broker: Standalone, topic: str) -> None:
    rest = Rest(broker.web_service_url)
    name = topic.replace("/", "://", 1)
    assert rest.get(f"proxy-stats/{topic}/stats").status == 404
    opened("v2/pingpong").ping().wait(WAIT_S)
    consumer = opened(f"v2/consumer/{topic}/s?subscriptionType=Key_Shared&subscriptionMode=NonDurable")
    producer = opened(f"v2/producer/{topic}")
    published(producer, "x")
    told(consumer)
    found = rest.get(f"proxy-stats/{topic}/stats").json
    assert rest.get("proxy-stats/stats").json[name] == found
    assert [one["numberOfMsgPublished"] for one in found["producerStats"]] == [1]
    (one,) = found["consumerStats"]
    assert one["remoteConnection"].startswith("/127.0.0.1:")
    assert (one["subscriptionName"], one["subscriptionType"]) == ("s", "Key_Shared")
    assert (one["subscriptionMode"], one["numberOfMsgDelivered"]) == ("NonDurable", 1)
    assert rest.get("proxy-stats/metrics").status == 200
    with urllib.request.urlopen(f"{broker.web_service_url}/metrics/") as response:
        page = response.read().decode()
    assert 'geminga_websocket_connections{cluster="standalone"} 3' in page


def test_who_sends_too_fast_is_held_back_and_nothing_is_refused(opened: Opens, topic: str) -> None:
    producer = opened(f"v2/producer/{topic}?maxPendingMessages=3")
    for number in range(500):
        tell(producer, payload="", context=str(number))
    assert [told(producer)["context"] for _ in range(500)] == [str(number) for number in range(500)]


def test_a_message_too_large_ends_the_socket(opened: Opens, topic: str) -> None:
    producer = opened(f"v2/producer/{topic}")
    # A few bytes on the wire: it is what they inflate to that counts.
    producer.send(json.dumps({"payload": "A" * (1 << 20)}))
    with pytest.raises(ConnectionClosed) as closed:
        producer.recv(timeout=WAIT_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_sockets_are_told_that_the_broker_stops() -> None:
    with ExitStack() as stack:
        with Standalone() as broker:
            url = f"ws://127.0.0.1:{broker.web_port}/ws/v2/consumer/persistent/public/default/t/s"
            socket = stack.enter_context(connect(url))
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=WAIT_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001


@pytest.mark.geminga_only("what comes before the answer is no client's")
@pytest.mark.parametrize(
    ("kind", "frame", "answered"),
    [
        ("producer/{}", {"payload": "YQ==", "context": "early"}, "context"),
        ("consumer/{}/s", {"type": "isEndOfTopic"}, "endOfTopic"),
        ("reader/{}", {"type": "isEndOfTopic"}, "endOfTopic"),
    ],
)
def test_frame_that_comes_with_the_request_is_answered_as_any_other(
    broker: Standalone, topic: str, kind: str, frame: dict[str, str], answered: str
) -> None:
    path = f"ws://127.0.0.1:{broker.web_port}/ws/v2/{kind.format(topic)}"
    peer = ClientProtocol(parse_uri(path))
    peer.send_request(peer.connect())
    peer.state = State.OPEN  # it does not wait for the answer
    peer.send_text(json.dumps(frame).encode())
    with create_connection(("127.0.0.1", broker.web_port), timeout=WAIT_S) as connection:
        connection.sendall(b"".join(peer.data_to_send()))
        data = b""
        while answered.encode() not in data:
            received = connection.recv(1 << 16)
            assert received, data
            data += received
        assert data.startswith(b"HTTP/1.1 101")
