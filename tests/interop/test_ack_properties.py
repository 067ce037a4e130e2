"""Properties of acknowledgments are kept with the position, as Pulsar keeps them; no client of today sends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.house.waiting import until
from support.processes.raw_protocol import RawConnection, frame
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

Type = pb.BaseCommand


class Acknowledger:
    """Publishes five messages, and acknowledges them with properties over a plain connection."""

    def __init__(self, broker: StandaloneProcess, topic: str) -> None:
        self._topic = f"persistent://public/default/{topic}"
        # Apache's broker serves what somebody looked up.
        assert Rest(broker.web_service_url).get(f"/lookup/v2/topic/persistent/public/default/{topic}").status == 200
        self._connection = RawConnection(broker.broker_port)
        self.ids: list[pb.MessageIdData] = []
        self._subscribe()
        producer = pb.CommandProducer(topic=self._topic, producer_id=1, request_id=2)
        self._connection.send(frame(pb.BaseCommand(type=Type.PRODUCER, producer=producer)))
        name = self._connection.expect(Type.PRODUCER_SUCCESS).producer_success.producer_name
        for number in range(5):
            metadata = pb.MessageMetadata(producer_name=name, sequence_id=number, publish_time=1)
            send = pb.CommandSend(producer_id=1, sequence_id=number)
            self._connection.send(frame(pb.BaseCommand(type=Type.SEND, send=send), encode_entry(metadata, b"m")))
            self.ids.append(self._connection.expect(Type.SEND_RECEIPT).send_receipt.message_id)

    def _subscribe(self) -> None:
        request = pb.CommandSubscribe(
            topic=self._topic, subscription="sub", subType=0, consumer_id=1, request_id=1, initialPosition=1
        )
        self._connection.send(frame(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request)))
        self._connection.expect(Type.SUCCESS)

    def acknowledge(self, index: int, *, is_cumulative: bool, **properties: int) -> str:
        """What the broker says of it; empty: it is stored."""
        ack = pb.CommandAck(consumer_id=1, ack_type=int(is_cumulative), request_id=9)
        ack.message_id.add().CopyFrom(self.ids[index])
        for name, number in properties.items():
            ack.properties.add(key=name, value=number % (1 << 64))
        self._connection.send(frame(pb.BaseCommand(type=Type.ACK, ack=ack)))
        return self._connection.expect(Type.ACK_RESPONSE).ackResponse.message

    def close(self) -> None:
        self._connection.close()


def cursor_of(standalone, topic: str) -> dict[str, Any]:
    stats = Rest(standalone.web_service_url).get(f"persistent/public/default/{topic}/internalStats").json
    cursor = stats["cursors"]["sub"]
    assert isinstance(cursor["properties"], dict)
    return cursor


def properties_of(standalone, topic: str) -> dict[str, int]:
    return cursor_of(standalone, topic)["properties"]


@pytest.fixture
def told(standalone, topic, judge_is_apache: bool) -> Callable[[Acknowledger, int, dict[str, int]], None]:
    """Judges the position and its properties once an acknowledgment of the message ``index`` got its receipt.

    A receipt of Apache's says that the acknowledgment has come: the position moves after it, and its properties after
    that (at the first one when the cursor's ledger is made). Geminga's says that all of it is stored.
    """

    def tell(client: Acknowledger, index: int, properties: dict[str, int]) -> None:
        position = f"{client.ids[index].ledgerId}:{client.ids[index].entryId}"

        def is_so() -> bool:
            cursor = cursor_of(standalone, topic)
            return (cursor["markDeletePosition"], cursor["properties"]) == (position, properties)

        if judge_is_apache:
            until(is_so, f"{position} with {properties}")
        cursor = cursor_of(standalone, topic)
        assert (cursor["markDeletePosition"], cursor["properties"]) == (position, properties)

    return tell


def test_properties_are_those_of_the_cumulative_acknowledgment_that_moved_the_position(standalone, topic, told) -> None:
    client = Acknowledger(standalone, topic)
    assert client.acknowledge(0, is_cumulative=False, single=1) == ""
    told(client, 0, {})
    assert client.acknowledge(1, is_cumulative=True, a=1, b=-(1 << 40)) == ""
    told(client, 1, {"a": 1, "b": -(1 << 40)})
    # A single one that moves the position leaves them, also with properties of its own.
    assert client.acknowledge(2, is_cumulative=False, single=1) == ""
    told(client, 2, {"a": 1, "b": -(1 << 40)})
    # One that is behind changes nothing, whatever the answer is.
    client.acknowledge(0, is_cumulative=True, late=1)
    told(client, 2, {"a": 1, "b": -(1 << 40)})
    assert client.acknowledge(3, is_cumulative=True, a=2) == ""
    told(client, 3, {"a": 2})
    assert client.acknowledge(4, is_cumulative=True) == ""
    told(client, 4, {})
    client.close()


def test_properties_are_there_after_an_unload(standalone, topic, told) -> None:
    client = Acknowledger(standalone, topic)
    assert client.acknowledge(2, is_cumulative=True, offset=(1 << 63) - 1) == ""
    # What Apache's unload saves is what its cursor has by then.
    told(client, 2, {"offset": (1 << 63) - 1})
    client.close()
    rest = Rest(standalone.web_service_url)
    assert rest.put(f"persistent/public/default/{topic}/unload").status == 204
    until(lambda: rest.get(f"persistent/public/default/{topic}/internalStats").status == 200, "loaded again")
    assert properties_of(standalone, topic) == {"offset": (1 << 63) - 1}


@pytest.mark.geminga_only("a receipt of Apache's does not say that it is stored")
def test_properties_are_there_after_a_kill(restartable, topic) -> None:
    client = Acknowledger(restartable, topic)
    assert client.acknowledge(2, is_cumulative=True, offset=7) == ""
    client.close()
    restartable.kill()
    restartable.start()
    assert properties_of(restartable, topic) == {"offset": 7}
