"""What a client has on a connection: producers, consumers, watches, and requests for them that are under way."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from geminga.broker.connection.request_load import RequestLoad
from geminga.broker.connection.traffic import Publishes
from geminga.model.errors import ProtocolError
from geminga.runtime import Contained, Part, next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.topic.producer import Producer

#: Ids of producers closed by the broker, whose late SENDs are dropped instead of closing the connection.
CLOSED_PRODUCERS_REMEMBERED_MAX: Final = 10_000
#: Consumers of a lost connection that leave in one turn of the loop: of one that leaves a Key_Shared subscription a
#: hundred points are taken off its ring, 0.1 to 0.2 ms.
LEAVING_AT_ONCE: Final = 25


class Members:
    """Of one connection, by the client's ids."""

    __slots__ = (
        "_closed_producers",
        "_departing",
        "_load",
        "_publishes",
        "consumers",
        "list_requests",
        "producers",
        "requests",
        "schema_requests",
        "waiting_producers",
        "watchers",
    )

    def __init__(self, load: RequestLoad, publishes: Publishes) -> None:
        self._load = load
        self._publishes = publishes
        #: Producers that are still being created are not here but in ``requests``.
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        #: Producers that wait for exclusive access.
        self.waiting_producers: dict[int, Producer] = {}
        #: Ids under creation: (command type, producer or consumer id) -> request id.
        self.requests: dict[tuple[int, int], int] = {}
        #: Topic list watches by the client's ids; each value ends its watch.
        self.watchers: dict[int, Callable[[], None]] = {}
        #: Requests for lists of topics; the first is under way.
        self.list_requests: deque[pb.CommandGetTopicsOfNamespace] = deque()
        #: Requests for schemas by their lane, made with the first; the first of each is under way.
        self.schema_requests: defaultdict[int, deque[pb.CommandGetSchema]] = defaultdict(deque)
        self._closed_producers: dict[int, None] = {}
        #: Consumers that are gone and whose client is not told yet, with the answers that it gets behind that.
        self._departing: dict[int, list[Callable[[], None]]] = {}

    def request_ended(self, key: tuple[int, int], request_id: int) -> bool:
        """Take a creation out of :attr:`requests`; whether the client still waits for it.

        It may have closed what was being made, and asked for it again: then the entry is that of the later request. Of
        a connection that is closed nobody waits.
        """
        if self.requests.get(key) != request_id:
            return False
        del self.requests[key]
        return True

    def sending_producer(self, producer_id: int) -> Producer | None:
        """The producer of a SEND; None if the SEND is to be dropped. Raises ProtocolError where there never was one."""
        producer = self.producers.get(producer_id)
        if producer is None and producer_id not in self._closed_producers:
            raise ProtocolError(f"SEND of producer {producer_id}, which is not ready")
        return producer

    def producer_closed_by_broker(self, producer_id: int) -> None:
        """Forget a producer that the client was told to close: SENDs already on their way are dropped."""
        self.producers.pop(producer_id, None)
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > CLOSED_PRODUCERS_REMEMBERED_MAX:
            del self._closed_producers[next(iter(self._closed_producers))]

    def consumer_departs(self, consumer_id: int) -> Callable[[], None]:
        """A consumer is gone, and its client will be told; what is returned is called then."""
        answers = self._departing[consumer_id] = []

        def told() -> None:
            if self._departing.get(consumer_id) is answers:
                del self._departing[consumer_id]
            for answer in answers:
                answer()
                self._load.done()

        return told

    def answer_gone(self, consumer_id: int, answer: Callable[[], None]) -> None:
        """Give the answer to a command for a consumer that is gone: never before its client is told that it is.

        Clients take the one for a fact about their subscription, and the other for a reason to come again.
        """
        answers = self._departing.get(consumer_id)
        if answers is None:
            answer()
        else:
            self._load.begins()
            answers.append(answer)

    def producer_opened(self, producer_id: int) -> None:
        """A producer id is in use (again): its SENDs count."""
        self._closed_producers.pop(producer_id, None)
        producer = self.producers.get(producer_id)
        if producer is not None and producer.topic.throttles.publish:
            self._publishes.publish_is_rated()

    def closed(self) -> None:
        """The connection is closed: what is being made is for nobody."""
        self.requests.clear()

    def leave(self, peer: str, part: Part) -> None:
        """The connection of ``peer`` is over: they leave. ``part`` is closed if that breaks, which changes nothing."""
        self.requests.clear()
        for end_watch in list(self.watchers.values()):
            end_watch()
        self.watchers.clear()
        # Who waits goes first: else each would be given access on the way, under another epoch, and who had it be
        # fenced for good when it comes back. All at once: none of a client that is gone keeps another out.
        for producer in [*self.waiting_producers.values(), *self.producers.values()]:
            with Contained(producer.topic, "the end of a connection", is_last=True):
                producer.connection_lost()
        self.producers.clear()
        self.waiting_producers.clear()
        consumers = list(self.consumers.values())
        self._close_consumers(consumers[:LEAVING_AT_ONCE])
        if len(consumers) > LEAVING_AT_ONCE:
            # Keys move to those who are left, thousands of times: others are served in between.
            spawn(self._close_in_turns(consumers[LEAVING_AT_ONCE:]), name=f"end of {peer}", part=part)
        self.consumers.clear()

    @staticmethod
    def _close_consumers(consumers: Sequence[Consumer]) -> None:
        for consumer in consumers:
            with Contained(consumer.subscription, "the end of a connection", is_last=True):
                consumer.close()

    async def _close_in_turns(self, consumers: Sequence[Consumer]) -> None:
        for start in range(0, len(consumers), LEAVING_AT_ONCE):
            await next_turn()
            self._close_consumers(consumers[start : start + LEAVING_AT_ONCE])
