"""The movers of the token ring: each takes tokens from its topic and publishes them to the next one, in transactions.

A mover commits, aborts, leaves a transaction to its time-out, asks for an end twice, on another connection, or for both
ends at once; it dies at any step. What it was told of each transaction it writes down in the :class:`Book`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from geminga.model.txn_id import TxnId
from geminga.runtime import spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.ring_brokers import COORDINATORS, RingBrokers, topic
from support.clusters.ring_client import Lost, Refused, RingClient, Taken

Sub = pb.CommandSubscribe
#: Of each transaction, milliseconds: the longest that one is open.
TIMEOUT_MS: Final = 1_000
#: Of transactions that are left open on purpose.
SHORT_TIMEOUT_MS: Final = 150
#: Messages that one transaction moves at most, and entries that it sends.
MOVED_MAX: Final = 8


class Book:
    """What clients saw and were told; it outlives all of them."""

    def __init__(self) -> None:
        #: True: committed, for certain; False: aborted.
        self.outcomes: dict[TxnId, bool] = {}
        #: Of each transaction, what it published (payloads with a serial number of their own) and what it took.
        self.sent: dict[TxnId, list[bytes]] = {}
        self.taken: dict[TxnId, list[Taken]] = {}
        #: Payloads that a consumer was given.
        self.seen: set[bytes] = set()
        self.counts: Counter[str] = Counter()
        self.acknowledged = 0
        self._counted: set[TxnId] = set()

    def learn(self, txn_id: TxnId, is_committed: bool) -> None:
        """Somebody was told, for certain."""
        known = self.outcomes.setdefault(txn_id, is_committed)
        assert known == is_committed, f"{txn_id} is {'committed' if is_committed else 'aborted'}, and was not before"

    def delivered(self, taken: Taken, client: RingClient) -> None:
        """A consumer was given it, so its transaction must be committed."""
        self.seen.add(taken.payload)
        if taken.txn_id is not None:
            self.learn(taken.txn_id, True)

    def commits(self, txn_id: TxnId) -> None:
        """The end was asked for and answered."""
        self.learn(txn_id, True)
        if txn_id not in self._counted:
            self._counted.add(txn_id)
            self.counts["committed"] += 1
            self.acknowledged += len(self.taken.get(txn_id, ()))

    def story(self, token: int) -> list[str]:
        """What became of a token, transaction by transaction."""
        found = []
        for txn_id, taken in self.taken.items():
            for one in taken:
                if int(one.payload.partition(b":")[0]) == token:
                    outcome = {True: "committed", False: "aborted", None: "unknown"}[self.outcomes.get(txn_id)]
                    found.append(
                        f"{txn_id} {outcome}: {one.payload!r} at {one.position} {one.index}/{one.size} of {one.topic}"
                    )
        return found

    def check(self) -> None:
        """Committed is all seen, and of each transaction all or nothing."""
        for txn_id, sent in self.sent.items():
            seen = self.seen.intersection(sent)
            outcome = self.outcomes.get(txn_id)
            if outcome:
                missing = sorted(set(sent) - seen)
                assert not missing, f"{txn_id} is committed, and nobody saw {missing}"
            else:
                assert not seen, f"{txn_id} is not committed, and {sorted(seen)} was seen"


class Account:
    """How a topic of this seed is used."""

    def __init__(self, rng: Any, index: int) -> None:
        self.index = index
        self.kind: int = rng.choice([Sub.Shared, Sub.Shared, Sub.Key_Shared, Sub.Failover, Sub.Exclusive])
        has_one = self.kind in (Sub.Failover, Sub.Exclusive)
        self.is_cumulative = has_one and rng.random() < 0.6
        #: Messages of a batch are acknowledged one by one.
        self.by_index = not self.is_cumulative and rng.random() < 0.5
        self.is_batched = rng.random() < 0.5
        self.movers = 1 if has_one else rng.choice([1, 2])


class Mover:
    """See the module."""

    def __init__(self, number: int, account: Account, target: Account, brokers: RingBrokers, book: Book) -> None:
        self.number = number
        self.account = account
        self.target = target
        self.brokers = brokers
        self.world = brokers.world
        self.book = book
        self.rng = brokers.world.rng("mover", number)
        self.name = f"mover-{number}"
        self.deduplicates = brokers.rules.config.deduplication
        self.client: RingClient | None = None
        self.txn_id: TxnId | None = None
        self.is_over = False
        self._sequence_id = 0
        self._serial = 0
        #: Of a cumulative mover: until these are over nobody knows what comes again.
        self._unresolved: dict[TxnId, None] = {}

    async def run(self) -> None:
        """Until the story ends."""
        while not self.is_over:
            try:
                await self._live()
            except (Lost, Refused):
                self.book.counts["given up"] += 1
            self.die()
            await self.world.sleep(self.rng.choice([0.005, 0.02, 0.1]))

    def die(self) -> None:
        """Without a word."""
        client, self.client, self.txn_id = self.client, None, None
        if client is not None:
            client.lose()

    def step(self, name: str) -> None:
        """The mover may die here."""
        if self.brokers.client_step(f"client's {name}"):
            raise Lost(f"died at {name}")

    async def _live(self) -> None:
        await self._resolve()
        await self._connect()
        if self.client is None:
            raise Lost("died on its way")
        await self.client.subscribe(topic(self.account.index), self.account.index, self.account.kind, MOVED_MAX)
        for _ in range(self.rng.choice([1, 4, 10, 30])):
            if self.client is None or self.client.is_closed or self.is_over:
                return
            await self._transfer(self.client)

    async def _connect(self) -> None:
        client = await self.brokers.client()
        if client is None:
            raise Lost("nobody is there")
        self.client = client
        last = await client.create_producer(topic(self.target.index), 100, self.name)
        self._sequence_id = max(self._sequence_id, last + 1)

    async def _transfer(self, client: RingClient) -> None:
        await client.more_messages(0.2)
        taken = self._choose(client)
        if not taken:
            return
        book, rng = self.book, self.rng
        choice = rng.random()
        timeout_ms = SHORT_TIMEOUT_MS if choice < 0.1 else TIMEOUT_MS
        txn_id = self.txn_id = await client.begin(rng.randrange(COORDINATORS), timeout_ms)
        self._unresolved[txn_id] = None
        self.step("begin")
        await client.add_subscription(txn_id, topic(self.account.index))
        self.step("add subscription")
        await client.add_partition(txn_id, topic(self.target.index))
        self.step("add partition")
        book.taken[txn_id], book.sent[txn_id] = taken, []
        if rng.random() < 0.5:
            await self._acknowledge(client, txn_id, taken)
            client = await self._send(client, txn_id, taken)
        else:
            client = await self._send(client, txn_id, taken)
            await self._acknowledge(client, txn_id, taken)
        if not client.is_closed:
            client.flow(self.account.index, len(taken))
        await self._end(client, txn_id, choice)
        self.txn_id = None
        if self.book.outcomes.get(txn_id) is not False:
            # An abort of another transaction brings an entry again: what is dealt with is not in it a second time.
            dealt_with = {(one.position, one.index) for one in taken}
            client.messages = [one for one in client.messages if (one.position, one.index) not in dealt_with]
        elif not self.account.is_cumulative:
            await self._given_back(taken)
        if self.account.is_cumulative and self.book.outcomes.get(txn_id) is not True:
            raise Lost("what was taken comes again, to a consumer that comes anew")

    def _choose(self, client: RingClient) -> list[Taken]:
        """Messages to move now; a whole entry, or what is left of it, unless they are acknowledged one by one."""
        account, waiting = self.account, client.messages
        if not waiting:
            return []
        count = self.rng.randrange(1, MOVED_MAX + 1)
        if not (account.by_index or account.is_cumulative):
            while count < len(waiting) and waiting[count].position == waiting[count - 1].position:
                count += 1
        taken, client.messages = waiting[:count], waiting[count:]
        return taken

    async def _acknowledge(self, client: RingClient, txn_id: TxnId, taken: list[Taken]) -> None:
        account, rng = self.account, self.rng
        if account.is_cumulative:
            await client.acknowledge(account.index, taken, txn_id, is_cumulative=True)
        elif account.by_index and rng.random() < 0.5:
            for one in taken:
                await client.acknowledge(account.index, [one], txn_id)
        elif account.by_index:
            # All of an entry means the rest of it, whoever acknowledged the others: parts are said one by one.
            last = [one for one in taken if one.size > 1 and one.index == one.size - 1]
            for part in ([one for one in taken if one not in last], last):
                if part:
                    await client.acknowledge(account.index, part, txn_id)
        else:
            await client.acknowledge(account.index, taken, txn_id)
        self.step("acknowledge")
        if rng.random() < 0.1:
            await self._conflict(client, txn_id, taken)

    async def _conflict(self, client: RingClient, txn_id: TxnId, taken: list[Taken]) -> None:
        other = await client.begin(self.rng.randrange(COORDINATORS), SHORT_TIMEOUT_MS)
        await client.add_subscription(other, topic(self.account.index))
        try:
            is_cumulative = self.account.is_cumulative
            await client.acknowledge(self.account.index, taken[-1:], other, is_cumulative=is_cumulative)
        except Refused as error:
            self.book.counts["conflict"] += error.error == pb.TransactionConflict
        else:
            # The first one may have timed out meanwhile; else both of them hold it.
            self.book.counts["no conflict"] += 1
            self.book.learn(txn_id, False)
            raise Lost("timed out")

    async def _send(self, client: RingClient, txn_id: TxnId, taken: list[Taken]) -> RingClient:
        """Each token in a message of its own, or in batches; where resends are recognised, again after a reconnect."""
        payloads = []
        for one in taken:
            self._serial += 1
            token = one.payload.partition(b":")[0]
            payloads.append(b"%s:%d.%d:%d.%d" % (token, *txn_id, self.number, self._serial))
        self.book.sent[txn_id] = payloads
        size = self.rng.choice([2, 3, MOVED_MAX]) if self.target.is_batched else 1
        entries = [payloads[at : at + size] for at in range(0, len(payloads), size)]
        numbered = []
        for entry in entries:
            numbered.append((self._sequence_id, entry))
            self._sequence_id += len(entry)
        if self.deduplicates and self.rng.random() < 0.1:
            # The connection breaks: nobody knows what was stored.
            spawn(self._break(client), name="a connection breaks")
        try:
            await self._publish(client, txn_id, numbered)
        except Lost:
            if not self.deduplicates or self.rng.random() < 0.3 or client is not self.client:
                raise
            client = await self._resend(txn_id, numbered)
        self.step("send")
        return client

    async def _break(self, client: RingClient) -> None:
        await self.world.sleep(self.rng.choice([0, 0.001]))
        client.lose()

    async def _publish(self, client: RingClient, txn_id: TxnId, entries: list[tuple[int, list[bytes]]]) -> None:
        sends = [
            client.send(100, self.name, number, entry, txn_id, key=str(number % 7), is_batch=self.target.is_batched)
            for number, entry in entries
        ]
        results = await asyncio.gather(*sends, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _resend(self, txn_id: TxnId, entries: list[tuple[int, list[bytes]]]) -> RingClient:
        """The same messages with the same numbers in the same transaction, on another connection."""
        for _ in range(4):
            self.die()
            await self.world.sleep(self.rng.choice([0.01, 0.1]))
            try:
                await self._connect()
                client = self.client
                if client is None:
                    raise Lost("died on its way")
                self.txn_id = txn_id
                if not self.account.is_cumulative:
                    await client.subscribe(topic(self.account.index), self.account.index, self.account.kind, 0)
                await self._publish(client, txn_id, entries)
                if self.account.is_cumulative:
                    await client.subscribe(topic(self.account.index), self.account.index, self.account.kind, 0)
            except Lost:
                continue
            self.book.counts["resent"] += 1
            return client
        raise Lost("could not send again")

    async def _given_back(self, taken: list[Taken]) -> None:
        """What an aborted transaction held comes again to who is there still, if nothing else happens meanwhile.

        Asked of whole entries: of one whose rest the consumer has, the part comes with the rest, at the latest.
        """
        client, struck = self.client, len(self.brokers.struck)
        if client is None or client.is_closed or self.account.movers > 1 or self.brokers.is_in_doubt:
            return
        if self.account.index not in client.topics:
            return  # it asked for the end on a connection that has no consumer
        # A Failover consumer that has just become the active one waits for a second.
        for _ in range(20):
            # Where order is kept all that is not acknowledged comes again, and takes permits.
            client.flow(self.account.index, 2 * MOVED_MAX)
            await self.world.sleep(0.1)
            there = {(one.position, one.index) for one in client.messages}
            missing = [one for one in taken if one.size <= 1 and (one.position, one.index) not in there]
            if not missing or client.is_closed or len(self.brokers.struck) > struck:
                return
        assert not missing, f"{missing} were given back by an abort, and do not come"

    # ---- ends

    async def _end(self, client: RingClient, txn_id: TxnId, choice: float) -> None:
        book = self.book
        if choice < 0.06:
            book.counts["left open"] += 1
        elif choice < 0.1:
            book.counts["commit at the time-out"] += 1
            await self.world.sleep(SHORT_TIMEOUT_MS / 1000 - 0.02 * self.rng.random())
            await self._ask(client, txn_id, commit=True)
        elif choice < 0.16:
            book.counts["both ends at once"] += 1
            await self._race(client, txn_id)
        else:
            commit = choice < 0.88
            if self.rng.random() < 0.15:
                book.counts["end asked twice"] += 1
                spawn(self._ask_quietly(client, txn_id, commit=commit), name="ask for an end")
            await self._ask(client, txn_id, commit=commit)

    async def _race(self, client: RingClient, txn_id: TxnId) -> None:
        first = self.rng.random() < 0.5
        spawn(self._ask_quietly(client, txn_id, commit=first), name="ask for an end")
        await self._ask(client, txn_id, commit=not first)

    async def _ask_quietly(self, client: RingClient, txn_id: TxnId, *, commit: bool) -> None:
        try:
            await self._ask_once(client, txn_id, commit=commit)
        except (Lost, Refused):
            return

    async def _ask(self, client: RingClient, txn_id: TxnId, *, commit: bool) -> None:
        """Ask, and where the answer was lost ask again on another connection, as clients do."""
        for attempt in range(5):
            try:
                if self.brokers.client_step("client's end"):
                    spawn(self._ask_quietly(client, txn_id, commit=commit), name="ask for an end")
                    await self.world.sleep(self.rng.choice([0, 0.001]))
                    self.die()
                    raise Lost("died at end")
                await self._ask_once(client, txn_id, commit=commit)
            except Lost:
                if self.client is None or attempt == 4 or self.rng.random() < 0.2:
                    raise
                self.book.counts["end asked again"] += 1
                await self.world.sleep(0.05)
                again = await self.brokers.client()
                if again is None:
                    raise
                client.lose()
                self.client = client = again
            else:
                self._unresolved.pop(txn_id, None)
                return

    async def _ask_once(self, client: RingClient, txn_id: TxnId, *, commit: bool) -> None:
        if not commit:
            self.brokers.steps.asked.add(txn_id)
        await client.end(txn_id, commit=commit)
        if commit:
            self.book.commits(txn_id)
        else:
            self.book.learn(txn_id, False)
            self.book.counts["aborted"] += 1

    async def _resolve(self) -> None:
        """Of a cumulative mover: until nobody can hold anything that it would skip."""
        if not self.account.is_cumulative:
            self._unresolved.clear()
        while self._unresolved and not self.is_over:
            txn_id = next(iter(self._unresolved))
            client = await self.brokers.client()
            if client is not None:
                try:
                    await self._ask_once(client, txn_id, commit=False)
                    del self._unresolved[txn_id]
                    continue
                except Refused as error:
                    # One that does not know that it lost its log does not know what the next one began.
                    if error.error == pb.TransactionNotFound and not self.brokers.is_in_doubt:
                        del self._unresolved[txn_id]
                        continue
                    # Committed, or on its way there: over when it is not found, or its commit is answered again.
                    if error.error == pb.InvalidTxnStatus and await self._is_committed(client, txn_id):
                        del self._unresolved[txn_id]
                        continue
                except Lost:
                    pass
                finally:
                    client.lose()
            await self.world.sleep(0.1)

    async def _is_committed(self, client: RingClient, txn_id: TxnId) -> bool:
        try:
            await self._ask_once(client, txn_id, commit=True)
        except Refused as error:
            return error.error == pb.TransactionNotFound and not self.brokers.is_in_doubt
        return True
