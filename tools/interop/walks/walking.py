"""Takes the steps of a walk at one broker, by our client and by REST, and takes down what was to be seen.

Ids differ from broker to broker: what is told are the numbers of messages, and how many entries lie before a position.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import geminga.client as gc
from tools.interop.walks.asking import DONE, STEP_S, ask, outcome
from tools.interop.walks.programs import Step

#: What is told of a step; JSON.
Seen = Any
HANGS: Final = "hangs"
RECONNECTED_S: Final = 20.0
POLL_S: Final = 0.02
#: How long is waited for what another broker showed.
PATIENT_S: Final = 10.0
NACK_MS: Final = 50
APART_S: Final = 0.004
_NUMBER: Final = re.compile(rb"<m(\d+)>")
_RANGE: Final = re.compile(r"\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")
_TYPES: Final = {
    "Exclusive": gc.ConsumerType.Exclusive,
    "Shared": gc.ConsumerType.Shared,
    "Failover": gc.ConsumerType.Failover,
    "Key_Shared": gc.ConsumerType.KeyShared,
}
_POSITIONS: Final = {"earliest": gc.InitialPosition.Earliest, "latest": gc.InitialPosition.Latest}
_ENDS: Final = {"earliest": gc.MessageId.earliest, "latest": gc.MessageId.latest}
_END_BODIES: Final = {
    "earliest": {"ledgerId": -1, "entryId": -1},
    "latest": {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1},
}


class Unknown(Exception):
    """The step names what is not there: it is left out, at both brokers alike."""


@dataclass(slots=True)
class Walker:
    """One walk at one broker."""

    client: gc.Client
    web_url: str
    #: ``tenant/namespace`` with retention without end, and the topic's local name.
    namespace: str
    name: str
    #: Nothing has come for so long: nothing will.
    quiet_s: float
    ids: dict[int, gc.MessageId] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    published: int = 0
    producers: dict[bool, gc.Producer[bytes]] = field(default_factory=dict)
    #: Subscription -> name -> consumer, and what each holds unacknowledged.
    consumers: dict[str, dict[str, gc.Consumer[bytes]]] = field(default_factory=dict)
    held: dict[str, dict[int, tuple[str, gc.Message[bytes]]]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, gc.Transaction] = field(default_factory=dict)
    #: What another broker showed at this step.
    awaited: Seen = None
    #: Somebody has published with numbers of his own.
    is_numbered: bool = False
    #: Subscriptions that are there.
    made: set[str] = field(default_factory=set)
    #: Subscriptions of which the next taking may show a message twice.
    asked_again: set[str] = field(default_factory=set)

    @property
    def topic(self) -> str:
        """Its full name."""
        return f"persistent://{self.namespace}/{self.name}"

    async def walk(self, steps: Sequence[Step], awaited: Sequence[Seen] = ()) -> list[Seen]:
        """What was seen at each step; behind one that hangs no other is taken.

        ``awaited``: what another broker showed, and what is waited for therefore, instead of quiet alone.
        """
        found: list[Seen] = []
        for i, step in enumerate(steps):
            self.awaited = awaited[i] if awaited else None
            found.append(HANGS if HANGS in found else await self.take_step(step))
        return found

    async def take_step(self, step: Step) -> Seen:
        """What was seen; an error by its name."""
        kind, *arguments = step
        act: Callable[..., Awaitable[Seen]] = STEPS[str(kind)]
        try:
            async with asyncio.timeout(STEP_S):
                return await act(self, *arguments)
        except Unknown as error:
            return f"left out: {error}"
        except gc.PulsarException as error:
            return type(error).__name__
        except TimeoutError:
            return HANGS

    # ---- clients

    async def publish(self, count: int, is_batch: bool, keys: int, transaction: str = "") -> Seen:
        numbers = await self._next(count)
        txn = self._transaction(transaction) if transaction else None
        if is_batch not in self.producers:
            self.producers[is_batch] = await self.client.create_producer(
                self.topic,
                producer_name=f"{self.name}-{'batch' if is_batch else 'single'}",
                batching_enabled=is_batch,
                batching_max_publish_delay_ms=5000,
            )
        producer = self.producers[is_batch]
        self.keys.update((number, f"k{number % keys}") for number in numbers if keys)
        more = {} if txn is None else {"txn": txn}
        sent = [
            asyncio.ensure_future(producer.send(b"<m%d>" % number, partition_key=self.keys.get(number), **more))
            for number in numbers
        ]
        await asyncio.sleep(0)
        if is_batch:
            await producer.flush()
        answers = await asyncio.gather(*sent, return_exceptions=True)
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, gc.MessageId):
                self.ids[number] = answer
        return [type(each).__name__ if isinstance(each, BaseException) else "" for each in answers]

    async def publish_numbered(self, first: int, count: int, is_batch: bool) -> Seen:
        """By one producer with sequence ids of its own; a receipt without an id says that it was there."""
        self.is_numbered = True
        numbers = await self._next(count)
        producer = await self.client.create_producer(
            self.topic,
            producer_name=f"{self.name}-numbered",
            batching_enabled=is_batch,
            batching_max_publish_delay_ms=5000,
        )
        async with producer:
            last = producer.last_sequence_id()
            sent = [
                asyncio.ensure_future(producer.send(b"<m%d>" % number, sequence_id=first + i))
                for i, number in enumerate(numbers)
            ]
            await asyncio.sleep(0)
            await producer.flush()
            answers = await asyncio.gather(*sent, return_exceptions=True)
        told = []
        for number, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, BaseException):
                told.append(type(answer).__name__)
            elif answer.entry_id() < 0:
                told.append("was there")
            else:
                self.ids[number] = answer
                told.append("")
        return [last, told]

    async def subscribe(self, name: str, consumer: str, kind: str, position: str, ahead: int = 1000) -> Seen:
        there = self.consumers.setdefault(name, {})
        if consumer in there:
            raise Unknown("it is there")
        there[consumer] = await self.client.subscribe(
            self.topic,
            name,
            consumer_type=_TYPES[kind],
            consumer_name=f"{name}-{consumer}",
            initial_position=_POSITIONS[position],
            receiver_queue_size=ahead,
            negative_ack_redelivery_delay_ms=NACK_MS,
            ack_receipt_enabled=True,
            start_message_id_inclusive=True,
        )
        self.types[name] = kind
        self.made.add(name)
        return ""

    async def close(self, name: str, consumer: str) -> Seen:
        found = self.consumers.get(name, {}).pop(consumer, None)
        if found is None:
            raise Unknown("no such consumer")
        held = self.held.get(name, {})
        for number in [number for number, (owner, _) in held.items() if owner == consumer]:
            del held[number]
        await found.close()
        return ""

    async def take(self, name: str) -> Seen:
        there = self.consumers.get(name)
        if not there:
            raise Unknown("no consumer")
        got: dict[str, list[int]] = {consumer: [] for consumer in there}
        held = self.held.setdefault(name, {})
        last = time.monotonic()
        missing = _count(self.awaited)
        may_repeat = name in self.asked_again
        self.asked_again.discard(name)
        seen: set[int] = set()

        async def drain(one: str, consumer: gc.Consumer[bytes]) -> None:
            nonlocal last, missing
            while (left := last + (PATIENT_S if missing > 0 else self.quiet_s) - time.monotonic()) > 0:
                try:
                    message = await consumer.receive(max(1, int(min(left, self.quiet_s) * 1000)))
                except gc.Timeout:
                    continue
                last = time.monotonic()
                number = self._number(message.data())
                held[number] = (one, message)
                if not (may_repeat and number in seen):
                    seen.add(number)
                    missing -= 1
                    got[one].append(number)

        await asyncio.gather(*(drain(one, consumer) for one, consumer in there.items()))
        if self.types[name] == "Shared":
            return sorted(number for numbers in got.values() for number in numbers)
        if self.types[name] == "Key_Shared" and True in self.producers:  # a batch goes by its first key
            got = {one: sorted(numbers) for one, numbers in got.items()}
        elif self.types[name] == "Key_Shared":  # the order is that of each key
            got = {one: sorted(numbers, key=lambda number: self.keys.get(number, "")) for one, numbers in got.items()}
        return got if len(got) > 1 else next(iter(got.values()))

    async def acknowledge(self, name: str, choice: str, transaction: str = "") -> Seen:
        chosen = self._chosen(name, choice)
        more = {"txn": self._transaction(transaction)} if transaction else {}
        errors = {}
        for number in chosen:
            one, message = self.held[name].pop(number)
            consumer = self.consumers[name].get(one)
            if consumer is not None:
                try:
                    await consumer.acknowledge(message, **more)
                except gc.PulsarException as error:
                    errors[number] = type(error).__name__
        return [chosen, errors]

    async def acknowledge_to(self, name: str, choice: str, transaction: str = "") -> Seen:
        number = self._chosen(name, choice)[-1]
        more = {"txn": self._transaction(transaction)} if transaction else {}
        one, message = self.held[name][number]
        await self.consumers[name][one].acknowledge_cumulative(message, **more)
        for other in [other for other in self.held[name] if other <= number]:
            del self.held[name][other]
        return number

    async def refuse(self, name: str, choice: str) -> Seen:
        chosen = self._chosen(name, choice)
        for number in chosen:
            one, message = self.held[name].pop(number)
            await self.consumers[name][one].negative_acknowledge(message)
        return chosen

    async def redeliver(self, name: str) -> Seen:
        if not self.consumers.get(name):
            raise Unknown("no consumer")
        # What is on its way comes again, too: of several consumers one may be sent what another gave back before its
        # own asking is there, and get that twice. At no broker is it told when, so that the next taking shows it once.
        await asyncio.sleep(self.quiet_s / 2)
        self.held.get(name, {}).clear()
        self.asked_again.add(name)
        for consumer in self.consumers[name].values():
            await consumer.redeliver_unacknowledged_messages()
        return ""

    async def seek(self, name: str, place: object) -> Seen:
        return await self._sought(name, self._id(place))

    async def seek_time(self, name: str, number: int) -> Seen:
        return await self._sought(name, self._time(number))

    async def _sought(self, name: str, target: gc.MessageId | int) -> Seen:
        there = self.consumers.get(name)
        if not there:
            raise Unknown("no consumer")
        self.held.get(name, {}).clear()
        await next(iter(there.values())).seek(target)
        return await self._connected()

    async def read(self, place: object, is_inclusive: bool, is_compacted: bool = False) -> Seen:
        reader = await self.client.create_reader(
            self.topic, self._id(place), start_message_id_inclusive=is_inclusive, is_read_compacted=is_compacted
        )
        async with reader:
            found = []
            while await reader.has_message_available():
                found.append(self._number((await reader.read_next(10_000)).data()))
            return found

    async def read_compacted(self, place: object) -> Seen:
        return await self.read(place, True, True)

    async def last_id(self) -> Seen:
        async with await self.client.create_reader(self.topic, gc.MessageId.earliest) as reader:
            return self._numbers_of(await reader.get_last_message_id())

    # ---- transactions

    async def begin(self, name: str) -> Seen:
        self.transactions[name] = await self.client.transaction(600)
        return ""

    async def commit(self, name: str) -> Seen:
        await self._ended(name).commit()
        return ""

    async def abort(self, name: str) -> Seen:
        await self._ended(name).abort()
        return ""

    def _transaction(self, name: str) -> gc.Transaction:
        if name not in self.transactions:
            raise Unknown("no such transaction")
        return self.transactions[name]

    def _ended(self, name: str) -> gc.Transaction:
        found = self._transaction(name)
        del self.transactions[name]
        return found

    # ---- administration

    async def skip(self, name: str, count: int) -> Seen:
        return await self._moved("POST", f"subscription/{name}/skip/{count}")

    async def skip_all(self, name: str) -> Seen:
        return await self._moved("POST", f"subscription/{name}/skip_all")

    async def reset(self, name: str, place: object, is_excluded: bool) -> Seen:
        body = {**self._body(place), "excluded": is_excluded}
        self.held.get(name, {}).clear()
        return await self._moved("POST", f"subscription/{name}/resetcursor", body)

    async def reset_time(self, name: str, number: int) -> Seen:
        self.held.get(name, {}).clear()
        return await self._moved("POST", f"subscription/{name}/resetcursor/{self._time(number)}")

    async def expire_to(self, name: str, place: object, is_excluded: bool) -> Seen:
        if is_excluded and "batchIndex" in self._body(place):
            raise Unknown("Apache's broker expires the whole batch")
        body = {**self._body(place), "excluded": is_excluded}
        # Apache's broker refuses where there is nothing to do, or the one before is not over.
        await self._moved("POST", f"subscription/{name}/expireMessages", body)
        return ""

    async def create(self, name: str, place: object) -> Seen:
        self.made.add(name)
        return await self._moved("PUT", f"subscription/{name}", self._body(place))

    async def delete(self, name: str, is_forced: bool) -> Seen:
        if is_forced and self.consumers.get(name):
            raise Unknown("who is sent away comes back, sooner or later")
        seen = await self._moved("DELETE", f"subscription/{name}?force={str(is_forced).lower()}")
        if seen == DONE:
            self.made.discard(name)
        return seen

    async def policy(self, name: str, value: object) -> Seen:
        status, _, _ = await self._asked("POST", name, value)
        # Apache's broker follows a topic of its own.
        await asyncio.sleep(self.quiet_s)
        return outcome(status)

    async def unload(self) -> Seen:
        return await self._moved("PUT", "unload")

    async def terminate(self) -> Seen:
        status, body, _ = await self._asked("POST", "terminate")
        if status != 200:
            return outcome(status)
        # Where nothing was published since the topic was loaded, Apache's broker tells the beginning of a new ledger.
        last, place = json.loads(body), (-1, -1)
        for one in self.ids.values():
            if (one.ledger_id(), one.entry_id()) <= (last["ledgerId"], last["entryId"]):
                place = max(place, (one.ledger_id(), one.entry_id()))
        return self._numbers_at({"ledgerId": place[0], "entryId": place[1]})

    async def peek(self, name: str, count: int) -> Seen:
        if name not in self.made:
            raise Unknown("Apache's broker makes the subscription")
        return self._entry(await self._asked("GET", f"subscription/{name}/position/{count}"))

    async def examine(self, end: str, count: int) -> Seen:
        return self._entry(await self._asked("GET", f"examinemessage?initialPosition={end}&messagePosition={count}"))

    async def get(self, number: int) -> Seen:
        found = self._id(number)
        return self._entry(await self._asked("GET", f"ledger/{found.ledger_id()}/entry/{found.entry_id()}"))

    async def id_at_time(self, number: int) -> Seen:
        status, body, _ = await self._asked("GET", f"messageid/{self._time(number)}")
        return self._numbers_at(json.loads(body)) if status == 200 else outcome(status)

    async def analyze(self, name: str) -> Seen:
        status, body, _ = await self._asked("POST", f"subscription/{name}/analyzeBacklog")
        if status != 200:
            return outcome(status)
        found = json.loads(body)
        return [found["entries"], found["messages"]]

    async def compact(self) -> Seen:
        status, _, _ = await self._asked("PUT", "compaction")
        while True:
            _, body, _ = await self._asked("GET", "compaction")
            found = json.loads(body) if body else {}
            if found.get("status") != "RUNNING":
                return [outcome(status), found.get("status")]
            await asyncio.sleep(POLL_S)

    async def look(self) -> Seen:
        # What was sent, and what was acknowledged, has to be taken notice of.
        await asyncio.sleep(self.quiet_s / 2)
        latest = time.monotonic() + PATIENT_S
        while True:
            seen = await self._statistics()
            if self.awaited is None or seen == self.awaited or time.monotonic() > latest:
                return seen
            await asyncio.sleep(POLL_S)

    async def _statistics(self) -> Seen:
        status, body, _ = await self._asked("GET", "stats?getPreciseBacklog=true")
        if status != 200:
            return outcome(status)
        stats = json.loads(body)
        status, body, _ = await self._asked("GET", "internalStats")
        inside = json.loads(body)
        subscriptions = {}
        for name, each in sorted(stats["subscriptions"].items()):
            cursor = inside["cursors"].get(name, {})
            if name.startswith("reader-") or name == "__compaction":
                continue
            before, single = self._cursor(cursor)
            subscriptions[name] = {
                "backlog": each["msgBacklog"],
                "unacknowledged": each.get("unackedMessages", 0),
                "consumers": len(each["consumers"]),
                "type": each.get("type", ""),
                "acknowledged before": before,
                "acknowledged singly": single,
            }
        # Apache's broker counts what it did not store for having it.
        published = -1 if self.is_numbered else stats["msgInCounter"]
        return {"published": published, "subscriptions": subscriptions}

    def _cursor(self, cursor: Mapping[str, Any]) -> tuple[int, list[int]]:
        """How many entries lie up to its mark, and which behind it are acknowledged."""
        entries = sorted({(one.ledger_id(), one.entry_id()) for one in self.ids.values()})
        ledger, _, entry = str(cursor.get("markDeletePosition", "-1:-1")).partition(":")
        mark = (int(ledger), int(entry))
        single = set()
        for a, b, c, d in _RANGE.findall(str(cursor.get("individuallyDeletedMessages", ""))):
            first, last = (int(a), int(b)), (int(c), int(d))
            single |= {index for index, each in enumerate(entries) if first < each <= last and each > mark}
        return sum(each <= mark for each in entries), sorted(single)

    async def _moved(self, method: str, path: str, body: object = None) -> Seen:
        status, _, _ = await self._asked(method, path, body)
        connected = await self._connected()
        return [outcome(status), connected] if connected else outcome(status)

    async def _connected(self) -> Seen:
        """Whoever was sent away comes back."""
        deadline = time.monotonic() + RECONNECTED_S
        await asyncio.sleep(self.quiet_s / 2)
        everybody = [consumer for there in self.consumers.values() for consumer in there.values()]
        while not all(one.is_connected() for one in everybody):
            if time.monotonic() > deadline:
                return "stay away"
            await asyncio.sleep(POLL_S)
        return ""

    async def _asked(self, method: str, path: str, body: object = None) -> tuple[int, bytes, Mapping[str, str]]:
        url = f"{self.web_url}/admin/v2/persistent/{self.namespace}/{self.name}/{path}"
        return await asyncio.to_thread(ask, method, url, body)

    # ---- numbers

    async def _next(self, count: int) -> range:
        """The numbers of the next messages, and when they are published: not in the millisecond of others."""
        numbers = range(self.published, self.published + count)
        self.published += count
        await asyncio.sleep(APART_S)
        now_ms = time.time_ns() // 1_000_000
        self.times.update((number, now_ms) for number in numbers)
        return numbers

    def _chosen(self, name: str, choice: str) -> list[int]:
        numbers = sorted(self.held.get(name, {}))
        if not numbers or not self.consumers.get(name):
            raise Unknown("nothing is held")
        slices = {"all": slice(None), "first": slice(1), "last": slice(-1, None), "halves": slice(None, None, 2)}
        return numbers[slices.get(choice, slice(1, None, 3))] or numbers

    @staticmethod
    def _number(payload: bytes) -> int:
        found = _NUMBER.fullmatch(payload)
        return -1 if found is None else int(found[1])

    def _time(self, number: int) -> int:
        if number not in self.times:
            raise Unknown("not published")
        return self.times[number]

    def _id(self, place: object) -> gc.MessageId:
        if isinstance(place, str):
            return _ENDS[place]
        if place not in self.ids:
            raise Unknown("not published")
        return self.ids[place]

    def _body(self, place: object) -> dict[str, int]:
        if isinstance(place, str):
            return _END_BODIES[place]
        found = self._id(place)
        body = {"ledgerId": found.ledger_id(), "entryId": found.entry_id()}
        return {**body, "batchIndex": found.batch_index()} if found.batch_index() >= 0 else body

    def _numbers_of(self, found: gc.MessageId) -> Seen:
        """The messages of an id: of a batch by its index, or all of its entry."""
        exact = [number for number, one in self.ids.items() if one == found]
        return exact or self._numbers_at({"ledgerId": found.ledger_id(), "entryId": found.entry_id()})

    def _numbers_at(self, body: Mapping[str, Any]) -> Seen:
        place = (body["ledgerId"], body["entryId"])
        numbers = [number for number, one in self.ids.items() if (one.ledger_id(), one.entry_id()) == place]
        entries = {(one.ledger_id(), one.entry_id()) for one in self.ids.values()}
        return numbers or f"behind {sum(each < place for each in entries)}"

    @staticmethod
    def _entry(answer: tuple[int, bytes, Mapping[str, str]]) -> Seen:
        status, body, headers = answer
        if status != 200:
            return outcome(status)
        return [[int(each) for each in _NUMBER.findall(body)], headers.get("x-pulsar-num-batch-message", "")]


STEPS: Final[Mapping[str, Callable[..., Awaitable[Seen]]]] = {
    "publish": Walker.publish,
    "publish numbered": Walker.publish_numbered,
    "policy": Walker.policy,
    "subscribe": Walker.subscribe,
    "close": Walker.close,
    "take": Walker.take,
    "ack": Walker.acknowledge,
    "ack to": Walker.acknowledge_to,
    "nack": Walker.refuse,
    "redeliver": Walker.redeliver,
    "seek": Walker.seek,
    "seek time": Walker.seek_time,
    "read": Walker.read,
    "read compacted": Walker.read_compacted,
    "last id": Walker.last_id,
    "begin": Walker.begin,
    "commit": Walker.commit,
    "abort": Walker.abort,
    "skip": Walker.skip,
    "skip all": Walker.skip_all,
    "reset": Walker.reset,
    "reset time": Walker.reset_time,
    "expire to": Walker.expire_to,
    "create": Walker.create,
    "delete": Walker.delete,
    "unload": Walker.unload,
    "terminate": Walker.terminate,
    "peek": Walker.peek,
    "examine": Walker.examine,
    "get": Walker.get,
    "id at time": Walker.id_at_time,
    "analyze": Walker.analyze,
    "compact": Walker.compact,
    "look": Walker.look,
}


def _count(seen: Seen) -> int:
    """How many messages a take had."""
    if isinstance(seen, dict):
        return sum(len(numbers) for numbers in seen.values())
    return len(seen) if isinstance(seen, list) else 0
