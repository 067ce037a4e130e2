"""The part of a shadow topic that follows its source: how far may be read, and what is hidden.

Both are the source's to say. The shadow asks the source's owner when it is loaded, and again every :data:`LOOK_S`; in
between it is told (:mod:`.source`). Until it was told once nothing may be read and nobody subscribes, for nobody knows
where the newest message is. While the source can not be asked, what was told last holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final, cast

from geminga.broker.core.source_word import Abort, SourceWord
from geminga.broker.topic.parts import PartTopic, Stats, TopicPart
from geminga.broker.topic.publish import PublishBatch, Refusal
from geminga.managed_ledger.rules.shadow import source_topic
from geminga.model.errors import GemingaError, NotAllowedError, TopicNotFoundError, UnavailableError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import SHADOW_SOURCE
from geminga.model.txn_id import TxnId
from geminga.runtime import get_logger, spawn
from geminga.wire.pulsar.markers import transaction_of

if TYPE_CHECKING:
    from geminga.broker.topic.services import ShadowLinks
    from geminga.managed_ledger.shadow import ShadowLedger
    from geminga.wire._generated import pulsar_api_pb2 as pb

#: How often the source is asked though it tells: a telling may be lost with its owner.
LOOK_S: Final = 60.0
#: Between two tries to ask a source that does not answer: doubled from the first to the last.
AGAIN_FIRST_S: Final = 0.1
AGAIN_MAX_S: Final = 10.0
#: How long a subscriber waits for the first word of the source.
KNOWN_S_MAX: Final = 5.0
#: Pulsar's answer to who publishes.
READ_ONLY: Final = "Cannot send messages to a shadow topic"
#: Why it is left where its source moves to another cluster from.
STAYS: Final = (
    "topics move from here to {url}, and a shadow does not: its consumers read what its source had here alone"
)
NOT_NAMED: Final = "the source does not name it among its shadow topics (shadowTopics)"

_log = get_logger(__name__)


class ShadowFollowing(TopicPart):
    """See the module."""

    __slots__ = (
        "_aborted",
        "_is_listed",
        "_known",
        "_known_aborts",
        "_links",
        "_news",
        "_readable",
        "_stays",
        "_task",
        "_topic",
        "reason",
        "source",
    )

    name: ClassVar[str] = "shadow"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic
        #: What it shows.
        self.source = source_topic(topic.ledger.stored.properties[SHADOW_SOURCE], topic.name)
        #: Why it does not follow its source now; empty: it does.
        self.reason = "the source was not asked yet"
        self._readable = EARLIEST
        #: As :data:`STAYS`; empty: nothing moves.
        self._stays = ""
        self._is_listed = False
        self._aborted: dict[TxnId, Abort] = {}
        #: Marker of the last abort that is known.
        self._known_aborts = EARLIEST
        self._known = asyncio.Event()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def ledger(self) -> ShadowLedger:
        """Its log."""
        return cast("ShadowLedger", self._topic.ledger)

    @property
    def is_listed(self) -> bool:
        """Whether the source names it."""
        return self._is_listed

    @property
    def is_hiding(self) -> bool:
        """Whether a transaction was aborted there."""
        return bool(self._aborted)

    def policies_changed(self) -> None:
        """Begin to follow; and whoever moves topics hears what becomes of this one."""
        moves = self._topic.services.moves
        place = None if moves is None else moves.place_of(self._topic.rules)
        stays = "" if place is None else STAYS.format(url=place.broker_url or place.broker_url_tls)
        if stays and stays != self._stays:
            _log.warning("%s shows %s: %s", self._topic.name, self.source, stays)
        self._stays = stays
        if self._task is None and not self._topic.is_closing:
            self._task = spawn(self._follow(), name=f"follow the source of {self._topic.name}", part=self._topic)

    async def close(self) -> None:
        """What was told is told anew to the next owner."""
        self.drop()

    def drop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()

    async def delete(self) -> None:
        """Nothing of the source goes."""
        self.drop()

    def stats(self) -> Stats:
        """What it shows, how far, why not further, and what went at the source before it was read."""
        return {
            "source": str(self.source),
            "state": "following" if not self.reason else "waiting",
            "reason": self.reason,
            "readable": f"{self._readable}",
            "lost": {**self.ledger.lost},
            "stays": self._stays,
        }

    # ---- who uses the topic

    async def until_known(self) -> None:
        """Until it is known where the newest message is. Raises UnavailableError: the source may name it at any moment,
        or its owner does not know yet that it does."""
        if not self._known.is_set():
            try:
                async with asyncio.timeout(KNOWN_S_MAX):
                    await self._known.wait()
            except TimeoutError as error:
                raise UnavailableError(f"{self._topic.name} shows {self.source}: {self.reason}") from error

    def admit(self, batch: PublishBatch) -> Iterable[PublishBatch]:
        """Nothing is."""
        batch.refusal = Refusal(NotAllowedError(READ_ONLY))
        return (batch,)

    def read_limit(self) -> Position:
        """As the source says."""
        return self._readable

    def hides(self, position: Position, metadata: pb.MessageMetadata) -> bool:
        """As the source does."""
        txn_id = transaction_of(metadata)
        abort = None if txn_id is None else self._aborted.get(txn_id)
        return abort is not None and abort.first <= position <= abort.marker

    # ---- following

    def told(self, word: SourceWord) -> None:
        """The source's owner says so by itself."""
        if word.is_listed and self._is_listed and word.aborted_through <= self._known_aborts:
            self._take(word)
        else:
            self._news.set()  # what it hides is asked for first, and who is not named hears so from the owner of now

    async def _follow(self) -> None:
        links = self._topic.services.shadows
        again_s = AGAIN_FIRST_S
        while True:
            self._news.clear()
            try:
                is_whole = await self._ask(links)
            except TopicNotFoundError:
                self.reason, wait_s = f"{self.source} does not exist", again_s
            except GemingaError as error:
                self.reason, wait_s = f"{self.source} can not be asked: {error}", again_s
            else:
                if not is_whole:
                    continue
                wait_s = again_s if self.reason else LOOK_S
            again_s = AGAIN_FIRST_S if wait_s == LOOK_S else min(2 * again_s, AGAIN_MAX_S)
            await self._until_news(wait_s)

    async def _until_news(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _ask(self, links: ShadowLinks) -> bool:
        """Ask once; whether there is nothing more to be told. Raises GemingaError."""
        word = await links.ask(self.source, self._topic.name, self._known_aborts)
        if not word.is_listed:
            self._not_named()
            return True
        was_hiding = self.is_hiding
        for abort in word.aborts:
            self._aborted[abort.txn_id] = abort
            self._known_aborts = max(self._known_aborts, abort.marker)
        if self.is_hiding != was_hiding:
            self._topic.parts.idleness_changed()
        if word.is_whole:
            self._known_aborts = max(self._known_aborts, word.aborted_through)
            self._is_listed = True
            self._take(word)
            self._forget_aborts()
        return word.is_whole

    def _take(self, word: SourceWord) -> None:
        self.reason = ""
        self._readable = max(self._readable, word.readable)
        self.ledger.told(word.readable, word.size_bytes, word.version)
        self._topic.parts.limit_moved()
        self._known.set()

    def _not_named(self) -> None:
        self.reason = NOT_NAMED
        if self._is_listed:
            # Loaded anew it shows nothing: its consumers are sent away, and what they acknowledged is kept.
            self._is_listed = False
            _log.warning("%s: %s: it is closed", self._topic.name, NOT_NAMED)
            services = self._topic.services
            spawn(services.unload(self._topic.name), name=f"unload {self._topic.name}", part=services.whole)

    def _forget_aborts(self) -> None:
        """Those whose markers went with their ledgers hide nothing."""
        first = self.ledger.ledgers.first_position.ledger_id
        gone = [txn_id for txn_id, abort in self._aborted.items() if abort.marker.ledger_id < first]
        for txn_id in gone:
            del self._aborted[txn_id]
