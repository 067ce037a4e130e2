"""Steps on one path: a change of this cluster is told, one of another cluster is made.

Those of one path come one at a time. Other paths do not wait for one that is being told, which takes as long as the
topic does: what others say meanwhile is followed, and what is deleted has its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from geminga.broker.resources.configuration_paths import SHARED_ROOTS
from geminga.broker.synchronization.core.deciding import (
    ABSENT,
    Announcement,
    Decision,
    Objections,
    Outcome,
    Stored,
    ThisCluster,
    adopted,
    answer_to,
    change_here,
    decide,
)
from geminga.broker.synchronization.core.events import SyncEvent
from geminga.broker.synchronization.core.records import NOTHING, PathRecord
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.broker.synchronization.paths import (
    digest_at,
    is_being_deleted,
    is_kept_alike,
    problem_of_path,
    problem_of_value,
    value_for,
)
from geminga.broker.synchronization.ports import EventTopic, Guard
from geminga.broker.synchronization.standing import SyncStanding
from geminga.broker.synchronization.stored_records import StoredRecord, StoredRecords
from geminga.metadata.cas import remove_empty_from, remove_if_empty
from geminga.metadata.ports import MetadataStore, Node
from geminga.model.errors import (
    BadVersionError,
    GemingaError,
    NodeNotEmptyError,
    NoSuchNodeError,
    PreconditionFailedError,
    UnavailableError,
)
from geminga.runtime import KeyedLocks, SparseWarnings, crash_point, get_logger

_log = get_logger(__name__)

#: Times that an event is looked at anew because somebody wrote its path meanwhile.
ROUNDS_MAX: Final = 8
#: Times that what is to be there before a change is tried to be made; then the change is made without.
PREPARED_MAX: Final = 5


class Steps:
    """See the module."""

    def __init__(
        self,
        metadata: MetadataStore,
        records: StoredRecords,
        topic: EventTopic,
        guard: Guard,
        *,
        here: Callable[[], ThisCluster],
        changed: Callable[[str], None],
        standing: SyncStanding,
        warnings: SparseWarnings,
    ) -> None:
        """``changed``: a path is to be looked at."""
        self._metadata = metadata
        self.records = records
        self._topic = topic
        self._guard = guard
        self._here = here
        self._changed = changed
        self._standing = standing
        self._counts = standing.counts
        self._warnings = warnings
        #: By path: for its steps.
        self._turns = KeyedLocks()
        #: How often what is to be there before an event's change could not be made, of the event under way.
        self._unprepared: tuple[Stamp, int] | None = None

    async def has_document(self, path: str) -> bool:
        """Whether something is stored at a path, and not only below it. Raises MetadataError."""
        node = await self._metadata.get(path)
        return node is not None and bool(node.value)

    # ---- here

    async def look(self, path: str) -> PathRecord | None:
        """Tell others what changed here; what is remembered of the path then. Raises GemingaError."""
        async with self._turns.of(path):
            known = await self.records.read(path)
            node = await self._metadata.get(path)
            stored = _stored(path, node)
            record = known.record
            if record is not None and record.held is not None and record.held == stored.digest != record.digest:
                if record.digest == NOTHING and node is not None:
                    await self._delete_held(known, record, node)
                self._standing.remembered(path, known.record)
                return known.record
            found = change_here(record, stored, self._here())
            if isinstance(found, PathRecord):
                await known.write(found)
            elif found is not None:
                await self._announce(known, found, None if node is None else node.value or None)
            self._standing.remembered(path, known.record, is_told=found is None)
            return known.record

    async def note_deletion(self, path: str) -> None:
        """If this cluster made one that nobody was told of, its time is now, whenever it can be told; a node that is
        there has its own. Raises GemingaError."""
        async with self._turns.of(path):
            known = await self.records.read(path)
            if known.record is None or known.record.digest == NOTHING or await self.has_document(path):
                return
            found = change_here(known.record, ABSENT, self._here())
            if isinstance(found, Announcement):
                await known.write(found.record)

    async def _announce(self, known: StoredRecord, change: Announcement, value: bytes | None) -> None:
        path = known.path
        if is_being_deleted(value):
            return  # its end is told
        problem = problem_of_path(path, lambda _: True) or problem_of_value(path, value)
        if problem:
            self._tell_unsendable(path, problem)
            return
        await known.write(change.record)
        crash_point("synchronization.before-publish")
        event = SyncEvent(path, value, change.stamp, change.record.is_first, change.replaces, tells_replaced=True)
        try:
            await self._topic.publish(event)
        except PreconditionFailedError as error:
            self._tell_unsendable(path, f"{error}")
            return
        crash_point("synchronization.published")
        await known.write(change.record.settled())
        self._standing.told(path, change.stamp)

    async def adopt(self, path: str) -> None:
        """Take a path of a restored store as it is, for older than what others say of it. Raises GemingaError."""
        async with self._turns.of(path):
            known = await self.records.read(path)
            node = await self._metadata.get(path)
            record = adopted(known.record, _stored(path, node), self._here())
            if record is not None:
                await known.write(record)

    async def tell_again(self, path: str, clusters: Sequence[str], *, with_deletions: bool) -> None:
        """Tell some clusters alone how a path came to be as it is, unless that is under way. Raises GemingaError."""
        async with self._turns.of(path):
            record = (await self.records.read(path)).record
            node = await self._metadata.get(path)
            value = None if node is None else node.value or None
            if record is None or record != record.settled() or record.digest != digest_at(path, value):
                return
            if is_being_deleted(value) or (value is None and not with_deletions):
                return
            event = SyncEvent(path, value, record.stamp, record.is_first, record.seen, tells_replaced=True)
            try:
                await self._topic.publish(event, clusters)
            except PreconditionFailedError as error:
                self._tell_unsendable(path, f"{error}")
                return
            self._standing.told(path, record.stamp)

    def _tell_unsendable(self, path: str, problem: str) -> None:
        self._standing.unsendable(path, problem)
        self._warnings.warn(f"a change of {path[:200]!r} is not told to other clusters: {problem}", "unsendable")

    async def _delete_held(self, known: StoredRecord, record: PathRecord, node: Node) -> None:
        """What was deleted elsewhere, and nothing here needs any more."""
        if await self._guard.keeps(known.path):
            return
        try:
            await self._delete(known.path, node.stat.version)
        except (NodeNotEmptyError, BadVersionError, NoSuchNodeError):
            return
        await known.write(record.settled())
        self._made(known.path, record.stamp, is_gone=True)

    async def forget(self, path: str, stamp: Stamp) -> None:
        """A deletion is remembered no more, unless something came since. Raises MetadataError."""
        async with self._turns.of(path):
            known = await self.records.read(path)
            record = known.record
            plain = None if record is None else record._replace(differs="", is_unseen=False)
            if record is not None and plain == PathRecord(stamp, NOTHING, record.replaced):
                await known.remove()
                self._standing.remembered(path, None)

    # ---- others

    async def follow(self, event: SyncEvent) -> None:
        """Make another cluster's change, if it is to be made. Raises GemingaError."""
        async with self._turns.of(event.path):
            for _ in range(ROUNDS_MAX):
                try:
                    known = await self.records.read(event.path)
                    if await self._follow(event, known):
                        self._standing.followed(event.path, event.stamp)
                        self._standing.remembered(event.path, known.record)
                        return
                except BadVersionError:
                    continue  # somebody wrote the path, or another broker its record
            raise UnavailableError(f"{event.path} is written all the time")

    async def _follow(self, event: SyncEvent, known: StoredRecord) -> bool:
        """Whether it was; else it is to be looked at anew."""
        node = await self._metadata.get(event.path)
        stored, before = _stored(event.path, node), None if node is None else node.value or None
        if is_being_deleted(event.value):
            return True  # its end comes
        here, digest = self._here(), digest_at(event.path, event.value)
        objections = Objections()
        if digest != stored.digest:
            objections = await self._guard.objections(event.path, before, event.value)
        found = decide(known.record, stored, event, digest, here, objections)
        self._tell(event, found, known)
        if found.announcement is not None:
            await self._announce(known, found.announcement, before)
        elif found.outcome is Outcome.MADE:
            assert found.record is not None
            await self._prepare(event, before)
            await known.write(found.record)
            crash_point("synchronization.before-change")
            return await self._make(known, event, node)
        elif (record := _noting(known.record, event, found)) is not None:
            await known.write(record)
        if found.outcome in (Outcome.OLD, Outcome.FIRST):
            self._changed(event.path)
        return True

    async def _make(self, known: StoredRecord, event: SyncEvent, node: Node | None) -> bool:
        record, path = known.record, event.path
        assert record is not None
        version = -1 if node is None else node.stat.version
        try:
            if event.value is not None:
                value = value_for(path, None if node is None else node.value, event.value)
                await self._metadata.put(path, value, expected_version=version)
            else:
                await self._delete(path, version)
        except NoSuchNodeError:
            return False
        except NodeNotEmptyError:
            await self._keep_above(known, event, node)
            return True
        crash_point("synchronization.changed")
        await known.write(record.settled())
        self._made(path, event.stamp, is_gone=event.value is None)
        return True

    async def _keep_above(self, known: StoredRecord, event: SyncEvent, node: Node | None) -> None:
        """There is something below what is deleted elsewhere: what all clusters have, or what is only held here."""
        record, path, stored = known.record, event.path, _stored(event.path, node)
        assert record is not None
        for name in await self._metadata.children(path):
            child = f"{path}/{name}"
            if not is_kept_alike(child):
                continue
            below = (await self.records.read(child)).record
            if (below is None or below.held is None) and await self.has_document(child):
                _log.warning("%s is deleted in cluster %s (%s), and is made there again: there is %s below it",
                             path, event.stamp.cluster, event.stamp, name)  # fmt: skip
                await self._announce(
                    known, answer_to(event, stored, self._here()), None if node is None else node.value
                )
                return
        await known.write(record.settled()._replace(held=stored.digest))
        self._hold(event, "there is something below it here")

    async def _delete(self, path: str, version: int) -> None:
        """With what is left of parents below and above it. Raises NodeNotEmptyError, BadVersionError, MetadataError."""
        for name in await self._metadata.children(path):
            await self._delete_empty(f"{path}/{name}")
        await self._metadata.delete(path, expected_version=version)
        root = next(each for each in SHARED_ROOTS if path.startswith(f"{each}/"))
        await remove_empty_from(self._metadata, path.rpartition("/")[0], root)
        await self._guard.removed(path)

    async def _delete_empty(self, path: str) -> None:
        if not await self.has_document(path):
            for name in await self._metadata.children(path):
                await self._delete_empty(f"{path}/{name}")
            await remove_if_empty(self._metadata, path)

    def _made(self, path: str, stamp: Stamp, *, is_gone: bool) -> None:
        self._counts.made += 1
        _log.info("%s is as cluster %s changed it (%s)", path, stamp.cluster, stamp)
        if is_gone:
            # What was kept for what is below it may go now.
            self._changed(path.rpartition("/")[0])

    async def _prepare(self, event: SyncEvent, before: bytes | None) -> None:
        """What can not be made holds up nothing for ever. Raises UnavailableError."""
        try:
            await self._guard.prepare(event.path, before, event.value)
        except GemingaError as error:
            stamp, times = self._unprepared or (event.stamp, 0)
            times = times + 1 if stamp == event.stamp else 1
            self._unprepared = event.stamp, times
            if times < PREPARED_MAX:
                raise UnavailableError(f"{event.path}: {error}") from error
            text = f"{event.path} is changed as in cluster {event.stamp.cluster} without: {error}"
            self._standing.given_up(text)
            _log.warning("%s", text)
        self._unprepared = None

    def _tell(self, event: SyncEvent, found: Decision, known: StoredRecord) -> None:
        if found.outcome is Outcome.AHEAD:
            self._counts.skipped += 1
            text = (
                f"an event of the configuration is passed over: {event.path} of cluster {event.stamp.cluster[:80]} was "
                f"changed at {event.stamp.time_ms}, which is later than now by the clock of this broker"
            )
            self._standing.given_up(text)
            self._warnings.warn(text, "ahead")
        elif found.outcome is Outcome.HELD:
            self._hold(event, found.reason)
        elif found.outcome is Outcome.COUNTERED:
            _log.warning("%s stays as it is though cluster %s says other (%s): %s", event.path, event.stamp.cluster,
                         event.stamp, found.reason)  # fmt: skip
        elif found.reason:
            _log.warning("%s: the change of cluster %s (%s) is made again, as the broker that began it did not end it",
                         event.path, event.stamp.cluster, event.stamp)  # fmt: skip
        if found.undone is not None:
            self._tell_undone(event, found, known)

    def _tell_undone(self, event: SyncEvent, found: Decision, known: StoredRecord) -> None:
        here = self._here().cluster
        if found.outcome is Outcome.FIRST:
            self._counts.held += 1
            text = f"{event.path} differs from that of cluster {event.stamp.cluster} since before they are kept alike"
            _log.warning("%s: the next change of either holds in both", text)
            return
        self._counts.undone += 1
        theirs = f"that of cluster {event.stamp.cluster} ({event.stamp})"
        if found.outcome is Outcome.OLD:
            record = known.record
            ours = f"a later one ({record.stamp})" if record is not None else f"a later one of cluster {here}"
            text = f"{event.path}: a change comes to nothing: {theirs}, by {ours}"
        else:
            mine = f"that of cluster {here} ({found.undone})"
            text = f"{event.path}: a change comes to nothing: {mine}, by {theirs}, which did not know it"
        self._standing.given_up(text)
        _log.warning("%s", text)

    def _hold(self, event: SyncEvent, reason: str) -> None:
        self._counts.held += 1
        what = "is deleted" if event.value is None else "is changed"
        _log.warning("%s %s in cluster %s (%s) and stays as it is here: %s", event.path, what, event.stamp.cluster,
                     event.stamp, reason)  # fmt: skip


def _noting(known: PathRecord | None, event: SyncEvent, found: Decision) -> PathRecord | None:
    """What is to be remembered of an event that changes nothing here, also that its cluster had another value before;
    None: nothing new is."""
    record = found.record or known
    if found.outcome is not Outcome.FIRST or found.undone is None or record is None:
        return found.record
    differs = record._replace(differs=event.stamp.cluster)
    return None if differs == known else differs


def _stored(path: str, node: Node | None) -> Stored:
    if node is None:
        return ABSENT
    stat = node.stat
    return Stored(digest_at(path, node.value), stat.version, stat.created_ms, stat.modified_ms)
