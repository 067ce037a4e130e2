"""The ledger client: creates, opens, recovers and deletes ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from geminga.bookkeeper import crash_points
from geminga.bookkeeper.config import BookKeeperConfig
from geminga.bookkeeper.environment import LedgerEnvironment
from geminga.bookkeeper.installation import META_INSTALLATION, Installation
from geminga.bookkeeper.ledger_ids import LedgerIds
from geminga.bookkeeper.ledger_store import LedgerNode, MetadataLiveLedgers
from geminga.metadata.ports import MetadataStore
from geminga.model.bookie_port import BookiePool
from geminga.model.errors import BadVersionError, CorruptionError, MetadataError, NoSuchLedgerError
from geminga.runtime import Runtime, crash_point, get_logger
from geminga.wire.bookkeeper.digest import DigestType
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata

if TYPE_CHECKING:
    from geminga.bookkeeper.bookie_records import BookieRecords
    from geminga.bookkeeper.core.placement import Placement
    from geminga.bookkeeper.giving_up import GivenUpEnd
    from geminga.bookkeeper.ledger_handle import LedgerHandle

#: Ids tried for one new ledger; each was taken by another client or lost to an unknown outcome.
CREATE_ATTEMPTS_MAX: Final = 16

_DIGEST_TYPES: Final = {
    "CRC32": DigestType.CRC32,
    "CRC32C": DigestType.CRC32C,
    "MAC": DigestType.HMAC,
    "DUMMY": DigestType.DUMMY,
}
_NO_CUSTOM_METADATA: Final[Mapping[str, bytes]] = {}

_log = get_logger(__name__)


class BookKeeper:
    """One client per process; its handles share the pool of bookies and the metadata store."""

    __slots__ = ("_bookies", "_config", "_env", "_ids", "_ledgers", "_live", "_metadata", "_runtime", "installation")

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        bookies: BookiePool,
        config: BookKeeperConfig | None = None,
        *,
        installation: Installation | None = None,
    ) -> None:
        """``installation``: whose ledgers it makes; left out: the metadata store is the broker's own as well."""
        self._runtime = runtime
        self._metadata = metadata
        self._config = config if config is not None else BookKeeperConfig()
        self._bookies = bookies
        self._live = MetadataLiveLedgers(metadata)
        self._ids = LedgerIds(metadata)
        self.installation = installation if installation is not None else Installation(metadata, runtime.rng)
        self._env = LedgerEnvironment(runtime, metadata, bookies, self._config)
        self._ledgers = self._env.ledgers

    def available_count(self) -> int:
        """Bookies that take new entries, as far as is known here."""
        return len(self._bookies.available())

    def read_only_count(self) -> int:
        """Bookies that are there and take none, as far as is known here."""
        return len(self._bookies.read_only())

    async def create_ledger(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom_metadata: Mapping[str, bytes] = _NO_CUSTOM_METADATA,
        newer_than: int = -1,
        password: bytes | None = None,
    ) -> LedgerHandle:
        """A new, empty ledger to append to.

        Its id is larger than ``newer_than``: ledger ids of one managed ledger must ascend wherever it is opened.
        ``password``: left out, the configured one.
        ``custom_metadata`` is what the creator says of it, groups of bookies included (``wire.bookkeeper.isolation``);
        whose ledger it is comes on top.
        Raises NotEnoughBookiesError, MetadataError. A crash or an error may leave an empty ledger that nobody knows.
        """
        from geminga.bookkeeper.ledger_handle import LedgerHandle  # here and below: a start makes and opens none

        metadata = await self._new_metadata(ensemble_size, write_quorum, ack_quorum, custom_metadata, password)
        for _ in range(CREATE_ATTEMPTS_MAX):
            ledger_id = await self._ids.next_id(max(newer_than, self._env.newest_refused_id))
            stored = await self._ledgers.create(ledger_id, metadata)
            if stored is not None:
                crash_point(crash_points.CREATED)
                return LedgerHandle(self._env, ledger_id, stored, is_writable=True)
        raise MetadataError(f"no ledger could be created in {CREATE_ATTEMPTS_MAX} attempts")

    async def _new_metadata(
        self,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom_metadata: Mapping[str, bytes],
        password: bytes | None,
    ) -> LedgerMetadata:
        """Of a ledger without entries, on bookies that were picked for it."""
        ensemble = await self._env.new_ensemble(ensemble_size, write_quorum, custom_metadata)
        return LedgerMetadata(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            fragments=(LedgerFragment(0, ensemble),),
            digest_type=_DIGEST_TYPES[self._config.digest_type],
            password=self._config.password.encode() if password is None else password,
            created_ms=self._runtime.clock.wall_ms(),
            custom_metadata={**custom_metadata, META_INSTALLATION: await self.installation.id()},
            creation_token=self._runtime.rng.below(1 << 62),
        )

    async def readmit_ledger(
        self,
        ledger_id: int,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom_metadata: Mapping[str, bytes] = _NO_CUSTOM_METADATA,
        password: bytes | None = None,
    ) -> LedgerHandle:
        """A ledger that was deleted, made anew under its id, empty, to be written once more and closed by the caller.

        Its metadata come first, so that bookies take it again; they have it fenced, so that whoever wrote it before is
        refused as ever. ``password``: left out, the configured one. Raises NotEnoughBookiesError, StorageError, also
        if it is there. A crash or an error may leave it there, with a part of its entries or none: to be deleted
        before the next attempt.
        """
        from geminga.bookkeeper.ledger_handle import LedgerHandle
        from geminga.bookkeeper.recovery import readmit_on_bookies

        metadata = await self._new_metadata(ensemble_size, write_quorum, ack_quorum, custom_metadata, password)
        # All of them: one that takes over for another later must not refuse it either.
        to_take = sorted({*metadata.fragments[0].ensemble, *self._bookies.available()})
        stored = await self._ledgers.create(ledger_id, metadata)
        if stored is None:
            raise MetadataError(f"ledger {ledger_id} can not be made anew: it is there, or may come to be")
        crash_point(crash_points.READMITTED_IN_METADATA)
        await readmit_on_bookies(self._env, ledger_id, metadata, to_take)
        crash_point(crash_points.READMITTED_ON_BOOKIES)
        return LedgerHandle(self._env, ledger_id, stored, is_writable=True, is_recovery=True)

    async def open_ledger(self, ledger_id: int, *, recover: bool = True) -> LedgerHandle:
        """A ledger to read.

        ``recover``: fence its writer, find its end and close it, so that everything acknowledged is readable and
        nothing more can be added. Otherwise an open ledger is read up to the last add confirmed known now.
        Raises NoSuchLedgerError, UnknownEntryError if its end can not be told now (try again later).
        """
        from geminga.bookkeeper.ledger_handle import LedgerHandle
        from geminga.bookkeeper.recovery import read_last_add_confirmed, recover_stored_ledger

        stored = await self._ledgers.read(ledger_id)
        if recover:
            stored = await recover_stored_ledger(self._env, ledger_id, stored, self._config.recovery_read_batch_size)
        metadata = stored.metadata
        if metadata.is_closed:
            last, length = metadata.last_entry_id, metadata.length_bytes
        else:
            last, length = await read_last_add_confirmed(self._env, ledger_id, metadata)
        return LedgerHandle(
            self._env, ledger_id, stored, is_writable=False, last_add_confirmed=last, length_bytes=length
        )

    async def follow_ledger(self, ledger_id: int) -> LedgerHandle:
        """A ledger to read while its writer goes on: see ``LedgerHandle.confirm``. Raises as :meth:`open_ledger`."""
        return await self.open_ledger(ledger_id, recover=False)

    async def copied_ledger(self, ledger_id: int) -> LedgerHandle:
        """A ledger to copy while its writer goes on: nothing that was acknowledged before the call lies behind its end.

        Its end may be an entry that was under way. Raises NoSuchLedgerError, UnknownEntryError, CorruptionError.
        """
        from geminga.bookkeeper.ledger_handle import LedgerHandle
        from geminga.bookkeeper.recovery import read_stored_end

        stored, last = await read_stored_end(self._env, ledger_id, self._config.recovery_read_batch_size)
        return LedgerHandle(self._env, ledger_id, stored, is_writable=False, last_add_confirmed=last)

    async def placement(self, custom_metadata: Mapping[str, bytes]) -> Placement:
        """By what bookies are chosen, for who chooses some for a ledger that is there already."""
        return await self._env.placement.known(custom_metadata)

    @property
    def config(self) -> BookKeeperConfig:
        """Its settings."""
        return self._config

    @property
    def records(self) -> BookieRecords:
        """What is said of bookies where ledgers are kept; loaded by who administers them."""
        from geminga.bookkeeper.bookie_records import BookieRecords

        return BookieRecords(self._metadata)

    async def ledger_ids(self) -> Sequence[int]:
        """Ids of all ledgers there are, whoever made them, ascending; raises MetadataError."""
        found = await self._live.live_ledger_ids()
        if found is None:
            raise MetadataError("the list of ledgers can not be read now")
        return sorted(found)

    async def read_ledger(self, ledger_id: int) -> LedgerNode:
        """Metadata of a ledger as they are now. Raises NoSuchLedgerError, CorruptionError, MetadataError."""
        return await self._ledgers.read(ledger_id)

    async def seal_ledger(self, ledger_id: int, version: int) -> int | None:
        """Make sure that nobody gets an acknowledgment for an entry of this ledger any more, by recovering it.

        Returns the version of its metadata from then on; None if they have not ``version`` (another one is at work
        on it) or it is gone. Raises what :meth:`open_ledger` raises: nothing may be concluded then.
        """
        from geminga.bookkeeper.recovery import recover_stored_ledger

        try:
            stored = await self._ledgers.read(ledger_id)
            if stored.version != version:
                return None
            sealed = await recover_stored_ledger(self._env, ledger_id, stored, self._config.recovery_read_batch_size)
        except NoSuchLedgerError:
            return None
        return sealed.version

    async def give_up_end(self, ledger_id: int, *, is_forced: bool = False, is_dry: bool = False) -> GivenUpEnd:
        """Close a ledger that can not be recovered behind the newest entry that can be read: see :mod:`.giving_up`.

        Raises PreconditionFailedError, NoSuchLedgerError, StorageError.
        """
        from geminga.bookkeeper.giving_up import give_up_end  # few ledgers ever need it

        batch_size = self._config.recovery_read_batch_size
        return await give_up_end(self._env, ledger_id, batch_size, is_forced=is_forced, is_dry=is_dry)

    async def delete_sealed_ledger(self, ledger_id: int, version: int) -> bool:
        """Delete the ledger if its metadata have this version still; False if not, or if it is gone."""
        try:
            deleted = await self._ledgers.delete(ledger_id, expected_version=version)
        except BadVersionError:
            return False
        crash_point(crash_points.DELETED)
        return deleted

    async def delete_ledger(self, ledger_id: int) -> None:
        """Delete the ledger's metadata; bookies collect its entries later. Fine if it is gone already.

        One that is not closed is fenced first, so that its writer, wherever it is, gets no acknowledgment for what
        is thrown away. A bookie that can not be fenced now learns of it when it collects its garbage.
        """
        from geminga.bookkeeper.recovery import fence_ledger

        try:
            stored = await self._ledgers.read(ledger_id)
            if not stored.metadata.is_closed:
                await fence_ledger(self._env, ledger_id, stored)
        except NoSuchLedgerError:
            return
        except (CorruptionError, MetadataError) as error:
            _log.warning("ledger %d is deleted without fencing: %s", ledger_id, error)
        await self._ledgers.delete(ledger_id)
        crash_point(crash_points.DELETED)
