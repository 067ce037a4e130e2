"""Messages of a topic, page by page: entries are asked for one by one, as the visitor's rights allow.

No cursor is made or moved. A page looks at a limited number of entries and bytes, and says where the next one goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from geminga.admin.errors import AdminError, NotFoundError
from geminga.app.console.core.entries import ViewedMessage, messages_of
from geminga.app.console.core.positions import EARLIEST, LATEST, EntryPlace, StartPlace, ledgers_of, places, start_of
from geminga.app.console.core.sought import Sought
from geminga.app.console.core.values import Reading, Value
from geminga.runtime import next_turn

if TYPE_CHECKING:
    from geminga.admin import AdminClient

#: Messages of a page, unless the visitor says otherwise, and at most.
SHOWN: Final = 20
SHOWN_MAX: Final = 100
#: Entries, and bytes of them, that a page looks at.
LOOKED_AT_MAX: Final = 300
LOOKED_AT_BYTES_MAX: Final = 4 << 20
#: Messages of these entries that a page looks at.
MESSAGES_MAX: Final = 2_000
#: Entries that a page asks for at the same time, and pages that have some in memory, over all visitors: one entry has
#: tens of megabytes where its producer wants that.
TOGETHER: Final = 2
READING_MAX: Final = 4
#: What a broker answers about an entry that it can not hand out: damaged, or too large once it is decompressed.
UNREADABLE: Final = (413, 500)
#: Schemas that one page asks for.
SCHEMAS_MAX: Final = 20


#: By loop: places of :data:`READING_MAX`.
_PLACES: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class BrowsedMessage(NamedTuple):
    """A message and its value."""

    message: ViewedMessage
    value: Value


class BrowsedPage(NamedTuple):
    """What was found."""

    messages: Sequence[BrowsedMessage]
    looked_at: int
    #: Where the next page goes on; empty: there is nothing more in that direction.
    further: str
    #: Markers of the broker's own, and entries that went while the page was made.
    markers: int
    gone: int


class Browsing(NamedTuple):
    """What a visitor asked to see."""

    topic: str
    #: ``earliest``, ``latest``, a message id, or empty: from the end that the order begins with.
    start: str = ""
    #: Milliseconds since the epoch, in place of ``start``; 0: none.
    start_ms: int = 0
    newest_first: bool = True
    sought: Sought = Sought()
    shown: int = SHOWN


async def browse(admin: AdminClient, request: Browsing) -> BrowsedPage:
    """A topic without partitions, or one partition. Raises AdminError, PlaceError for a message id that is none."""
    start = await _start_of(admin, request)
    internal = await admin.topics.internal_stats(request.topic)
    way = places(ledgers_of(internal), start.place if start is not None else None, newest_first=request.newest_first)
    page = _Page(admin, request, start)
    await page.fill(way)
    return BrowsedPage(page.found, page.looked_at, page.further, page.markers, page.gone)


def _turns() -> asyncio.Semaphore:
    return _PLACES.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(READING_MAX))


async def _start_of(admin: AdminClient, request: Browsing) -> StartPlace | None:
    if request.start_ms:
        found = await admin.messages.message_id_at(request.topic, request.start_ms)
        return StartPlace(EntryPlace(int(found["ledgerId"]), int(found["entryId"])))
    if request.start in ("", LATEST if request.newest_first else EARLIEST):
        return None
    if request.start == EARLIEST:
        return StartPlace(EntryPlace(0, 0))
    if request.start == LATEST:
        last = await admin.messages.last_message_id(request.topic)
        return StartPlace(EntryPlace(max(int(last["ledgerId"]), 0), max(int(last["entryId"]), 0)))
    return start_of(request.start)


class _Page:
    """One that is being filled."""

    def __init__(self, admin: AdminClient, request: Browsing, start: StartPlace | None) -> None:
        self.found: list[BrowsedMessage] = []
        self.looked_at = self.markers = self.gone = 0
        self.further = ""
        self._admin = admin
        self._request = request
        self._start = start
        self._bytes = self._seen = 0
        self._schemas = SchemaReading(admin, request.topic)

    async def fill(self, way: Iterator[EntryPlace]) -> None:
        """Until the page is full, or has looked at enough, or there is no more."""
        while together := self._next(way):
            async with _turns():
                if not await self._fill(together, way):
                    return

    async def _fill(self, together: Sequence[EntryPlace], way: Iterator[EntryPlace]) -> bool:
        """Whether there is room for more."""
        entries = await asyncio.gather(*(self._messages(place) for place in together))
        for place, messages in zip(together, entries, strict=True):
            # One entry is looked at however large it is: else the next page would be this one.
            is_enough = self.looked_at and self._bytes > LOOKED_AT_BYTES_MAX
            if len(self.found) >= self._request.shown or is_enough:
                self.further = str(place)
                return False
            self.looked_at += 1
            if not await self._take(place, messages):
                return False
        if self.looked_at >= LOOKED_AT_MAX:
            self.further = str(next(way, ""))
            return False
        return True

    def _next(self, way: Iterator[EntryPlace]) -> list[EntryPlace]:
        count = min(TOGETHER, LOOKED_AT_MAX - self.looked_at)
        if self._request.sought.is_all:
            count = min(count, self._request.shown - len(self.found) + 1)
        return [*islice(way, count)]

    async def _messages(self, place: EntryPlace) -> list[ViewedMessage] | None:
        """None: it went meanwhile."""
        try:
            stored = await self._admin.messages.get(self._request.topic, place.ledger_id, place.entry_id)
        except NotFoundError:
            return None
        except AdminError as error:
            if error.status not in UNREADABLE:
                raise
            # One that is damaged or too large hides no other.
            return [ViewedMessage(str(place), b"", problem=error.reason)]
        self._bytes += len(stored.payload)
        found = messages_of(stored.payload, stored.headers)
        if self._request.newest_first:
            found.reverse()
        return found

    async def _take(self, place: EntryPlace, messages: list[ViewedMessage] | None) -> bool:
        """Whether there was room for all that is wanted of an entry."""
        if messages is None:
            self.gone += 1
            return True
        for message in messages:
            if message.marker:
                self.markers += 1
                continue
            if self._is_before_start(place, message):
                continue
            if len(self.found) >= self._request.shown or self._seen >= MESSAGES_MAX:
                self.further = message.id
                return False
            self._seen += 1
            if self._request.sought.may_be(message):
                await self._add(message)
        return True

    async def _add(self, message: ViewedMessage) -> None:
        """To what is shown, if its value has what is looked for."""
        await self._schemas.prepare(message.schema_version)
        # Reading values keeps others waiting: one at a time.
        await next_turn()
        reading, read = self._schemas.reading, _read(message)
        if self._request.sought.has_text(reading.text_of(*read) if self._request.sought.text else ""):
            value = reading.value_of(*read, is_listed=True)
            self.found.append(BrowsedMessage(message._replace(payload=None), value))

    def _is_before_start(self, place: EntryPlace, message: ViewedMessage) -> bool:
        """Of the batch that the page begins in."""
        if self._start is None or self._start.batch_index < 0 or place != self._start.place:
            return False
        if message.batch_index < 0:
            return False
        if self._request.newest_first:
            return message.batch_index > self._start.batch_index
        return message.batch_index < self._start.batch_index


def _read(message: ViewedMessage) -> tuple[bytes | None, str | bytes | None, int | None]:
    # What could not be taken apart is of no schema.
    whole = message.problem or message.encryption or message.chunk
    return message.payload, message.key, None if whole else message.schema_version


class SchemaReading:
    """Schemas of a topic, each asked for once, as far as the visitor may see them."""

    def __init__(self, admin: AdminClient, topic: str) -> None:
        self.reading = Reading()
        self._admin = admin
        self._topic = topic
        self._asked = 0

    async def prepare(self, version: int | None) -> None:
        """Know how values of that version are read, or why not."""
        if version is None or self.reading.is_known(version):
            return
        if self._asked >= SCHEMAS_MAX:
            self.reading.learn(version, None, f"the page has more than {SCHEMAS_MAX} versions of the schema")
            return
        self._asked += 1
        try:
            document = await self._admin.schemas.get_version(self._topic, version)
        except AdminError as error:
            self.reading.learn(version, None, f"version {version} of the schema can not be had: {error.reason}")
        else:
            self.reading.learn(version, document)


async def one_message(admin: AdminClient, topic: str, message_id: str) -> tuple[ViewedMessage, Value]:
    """A message with all of its payload, and its value. Raises AdminError (NotFoundError), PlaceError."""
    start = start_of(message_id)
    async with _turns():
        stored = await admin.messages.get(topic, start.place.ledger_id, start.place.entry_id)
        found = messages_of(stored.payload, stored.headers)
    wanted = [each for each in found if start.batch_index < 0 or each.batch_index in (-1, start.batch_index)]
    if not wanted:
        raise NotFoundError(message_id, 404, f"entry {start.place} has no message {start.batch_index}")
    message = wanted[0]
    schemas = SchemaReading(admin, topic)
    await schemas.prepare(message.schema_version)
    return message, schemas.reading.value_of(*_read(message), is_listed=False)


async def partitions_of(admin: AdminClient, topic: str) -> int:
    """How many a topic has; 0: it is none, or a partition. Raises AdminError."""
    return int((await admin.topics.partitioned_metadata(topic)).get("partitions", 0))
