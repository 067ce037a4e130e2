"""The part of a topic that others show (``shadowTopics``): it tells the owner of each how far may be read.

Nobody's position is kept: what is told is the newest, and who missed something asks. A shadow that is away costs a try
now and then, and no storage: it holds nothing of the topic. One telling at a time for each, so that many appends are
told as one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Final

from geminga.broker.policies.core.storage_rows import SHADOW_TOPICS
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.model.errors import GemingaError, InvalidTopicNameError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import spawn, wait_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from geminga.broker.core.source_word import Abort, SourceWord
    from geminga.broker.topic.services import ShadowLinks

#: Between two tellings of a shadow that another broker has: what comes meanwhile is told with the next.
TELL_MS: Final = 20
#: Between two tries to tell one that can not be told: doubled from the first to the last.
AGAIN_FIRST_MS: Final = 100
AGAIN_MAX_MS: Final = 10_000


def shadows_of(topic: PartTopic) -> frozenset[TopicName]:
    """Those that may show a topic, as its policies say: of a partition, their partitions of the same number."""
    found = set()
    for text in topic.rules[SHADOW_TOPICS]:
        try:
            name = TopicName.parse(text)
        except InvalidTopicNameError:
            continue  # written by another make of broker, which looks at none
        found.add(name.with_partition(topic.name.partition) if topic.name.is_partition else name)
    return frozenset(found)


class ShownTopic(TopicPart):
    """See the module."""

    __slots__ = ("_aborted_through", "_remove_listener", "_topic", "tellers")

    name: ClassVar[str] = "shadows"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        self.tellers: dict[TopicName, Teller] = {}
        #: Marker of the newest abort; None: to be found out.
        self._aborted_through: Position | None = None
        self._remove_listener = topic.ledger.tail.add_listener(self._more)

    @classmethod
    def is_wanted(cls, topic: PartTopic) -> bool:
        """Where its policies name any. What brokers keep for themselves is shown to nobody."""
        return not topic.name.is_system and bool(shadows_of(topic))

    def policies_changed(self) -> None:
        """Tell those that are named, and those that are no longer, who show nothing from then on."""
        wanted = shadows_of(self._topic)
        for name in [*self.tellers]:
            if name not in wanted:
                self.tellers.pop(name).end(is_told=True)
        for name in sorted(wanted - self.tellers.keys(), key=str):
            self.tellers[name] = Teller(self._topic, name, self._topic.services.shadows, self.word)
        self._more()

    def transaction_ended(self, txn_id: TxnId, *, is_committed: bool) -> None:
        """There is one more to hide, perhaps."""
        del txn_id
        if not is_committed:
            self._aborted_through = None

    async def close(self) -> None:
        """Its next owner tells."""
        self.drop()

    def drop(self) -> None:
        """Nobody is told any more."""
        self._remove_listener()
        tellers, self.tellers = self.tellers, {}
        for teller in tellers.values():
            # Of a topic that goes on and names none any more: they hear so.
            teller.end(is_told=not self._topic.is_closing)

    async def delete(self) -> None:
        """Shadows see by its list that it is gone."""
        self.drop()

    def stats(self) -> Stats:
        """Of each shadow: what it was told last, and why it can not be told."""
        return {str(name): {"told": f"{teller.told}", "reason": teller.reason} for name, teller in self.tellers.items()}

    def word_for(self, shadow: TopicName, known: Position) -> SourceWord:
        """What a shadow hears that asks, and knows of aborts up to ``known``."""
        from geminga.broker.core.source_word import UNLISTED, aborts_behind

        if shadow not in self.tellers:
            return UNLISTED
        aborts, is_whole = aborts_behind(self._aborts(), known)
        return self.word()._replace(aborts=aborts, is_whole=is_whole)

    def word(self) -> SourceWord:
        """What all hear."""
        from geminga.broker.core.source_word import SourceWord

        ledger = self._topic.ledger
        readable = ledger.extent.readable_position
        info = ledger.ledgers.find(readable.ledger_id)
        if self._aborted_through is None:
            self._aborted_through = max((abort.marker for abort in self._aborts()), default=EARLIEST)
        return SourceWord(
            is_listed=True,
            readable=readable,
            size_bytes=0 if info is None else info.size_bytes,
            version=ledger.stored.version,
            aborted_through=self._aborted_through,
        )

    def _aborts(self) -> Iterator[Abort]:
        if not self._topic.services.has_transactions:
            return
        from geminga.broker.core.source_word import Abort
        from geminga.broker.topic.transaction_buffer import TransactionBuffer

        buffer = self._topic.parts.find(TransactionBuffer)
        if buffer is not None and buffer.state is not None:
            for txn_id, aborted in buffer.state.aborted.items():
                yield Abort(txn_id, *aborted)

    def _more(self) -> None:
        for teller in self.tellers.values():
            teller.tell_soon()


class Teller:
    """Tells one shadow."""

    __slots__ = ("_is_due", "_is_ended", "_links", "_task", "_topic", "_word", "name", "reason", "told")

    def __init__(self, topic: PartTopic, name: TopicName, links: ShadowLinks, word: Callable[[], SourceWord]) -> None:
        self._topic = topic
        self._links = links
        self._word = word
        self.name = name
        #: How far it was told that may be read.
        self.told = EARLIEST
        #: Why it can not be told; empty: it was.
        self.reason = ""
        self._is_due = self._is_ended = False
        self._task: asyncio.Task[None] | None = None

    def tell_soon(self) -> None:
        """There is something new."""
        self._is_due = True
        if self._task is None:
            self._task = spawn(self._run(), name=f"tell {self.name} of {self._topic.name}", part=self._topic)

    def end(self, *, is_told: bool) -> None:
        """Tell nothing more but, with ``is_told``, that it shows nothing any more."""
        self._is_ended = True
        if self._task is not None:
            self._task.cancel()
        if is_told:
            self._task = spawn(self._say_unlisted(), name=f"tell {self.name} that it shows nothing")

    async def _run(self) -> None:
        again_ms = AGAIN_FIRST_MS
        try:
            while self._is_due:
                self._is_due = False
                word = self._word()
                try:
                    is_here = await self._links.tell(self.name, word)
                except GemingaError as error:
                    self._is_due, self.reason = True, f"{error}"
                    await wait_ms(again_ms)
                    again_ms = min(2 * again_ms, AGAIN_MAX_MS)
                    continue
                again_ms, self.reason, self.told = AGAIN_FIRST_MS, "", word.readable
                if not is_here:
                    await wait_ms(TELL_MS)
        finally:
            if not self._is_ended:
                self._task = None

    async def _say_unlisted(self) -> None:
        from geminga.broker.core.source_word import UNLISTED

        try:
            await self._links.tell(self.name, UNLISTED)
        except GemingaError as error:
            self.reason = f"{error}"  # it hears so when it next asks
