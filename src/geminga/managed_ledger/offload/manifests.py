"""The manifests of a topic follow its ledger list: one in each root that has files of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from geminga.lake.core.manifest import Manifest, ManifestLedger
from geminga.lake.core.names import ledger_file, topic_directory
from geminga.lake.service import Root
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.offload import lake_files
from geminga.managed_ledger.offload.lake_files import FileDeletion
from geminga.managed_ledger.rules.offload import OffloadPolicy, record_of
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import StorageError
from geminga.model.topic_name import TopicName
from geminga.runtime import again, get_logger
from geminga.wire.managed_ledger.offload_context import OffloadRecord

_log = get_logger(__name__)


async def roots(stored: StoredList, services: StorageServices, policy: OffloadPolicy | None = None) -> list[Root]:
    """Every root that has files of the topic, and the one that a policy names. Raises StorageError."""
    wanted = [
        (record.driver, record.properties) for info in stored.ledgers.infos if (record := _ours(info)) is not None
    ]
    if policy is not None and policy.driver:
        wanted.append((policy.driver, policy.properties))
    found: list[Root] = []
    for driver, properties in wanted:
        root = await services.lake().root(driver, properties)
        if root not in found:
            found.append(root)
    return found


async def delete_files(stored: StoredList, services: StorageServices, noted: Sequence[FileDeletion]) -> None:
    """Files that no list names any more go, but not before the manifest does not name them either."""
    try:
        await write(stored, services, noted)
    except StorageError as error:
        # Each file leaves the manifest that there is before it goes.
        _log.warning("%s: the manifest is not written now: %s", stored.name, error)
    await lake_files.carry_out(services, noted)


async def write(
    stored: StoredList,
    services: StorageServices,
    deleted: Sequence[FileDeletion] = (),
    policy: OffloadPolicy | None = None,
) -> None:
    """Write each manifest that says something else than the list. ``deleted``: files that left it; ``policy``: its root
    is looked at as well.

    Raises StorageError.
    """
    found = await roots(stored, services, policy)
    for deletion in deleted:
        root = await services.lake().root(deletion.driver, deletion.properties)
        if root not in found:
            found.append(root)
    failure: StorageError | None = None
    for root in found:
        try:
            await _write_one(stored, services, root)
        except StorageError as error:
            failure = again(error)  # the others' files are named all the same
    if failure is not None:
        raise again(failure)


async def _write_one(stored: StoredList, services: StorageServices, root: Root) -> None:
    """As :func:`write`, in one root."""
    directory = topic_directory(stored.name)
    before = await root.read_manifest(directory)
    known: Mapping[str, ManifestLedger] = {} if before is None else {one.uid: one for one in before.ledgers}
    async with stored.lock():
        version, created_ms = stored.version, stored.created_ms
        ids = [info.ledger_id for info in stored.ledgers.infos]
        named = [
            (info.ledger_id, info.entries, info.size_bytes, info.closed_ms, record)
            for info in stored.ledgers.infos
            if (record := _ours(info)) is not None
            and record.is_complete
            # What its manifest names lies here, though policies had another name for it, as another endpoint.
            and ((record.driver, record.properties) == (root.driver, root.properties) or record.uid in known)
        ]
        is_later = before is not None and (before.created_ms, before.list_version) > (created_ms, version)
        is_later = is_later and not stored.is_deleted
        if is_later:
            await stored.require_ours()
    if before is not None and is_later:
        # It is of what came behind the backup that the metadata were brought back from, and would count for ever.
        await root.delete_topic(directory, before.created_ms)
        before = None
    is_older = before is None or before.created_ms != created_ms
    ledgers = [
        found_one
        for ledger_id, entries, size_bytes, closed_ms, record in named
        if (found_one := known.get(record.uid)) is not None
        or (found_one := await _look_up(root, directory, (ledger_id, entries, size_bytes, closed_ms), record))
    ]
    following = dict(pairwise(ids))
    ledgers = [one._replace(next_ledger_id=following.get(one.ledger_id)) for one in ledgers]
    if not ledgers:
        if before is not None:
            # None is as good as one that names nothing, and nobody would delete that with the topic.
            await root.delete_topic(directory, created_ms)
        return
    if before is not None and not is_older and tuple(ledgers) == before.ledgers:
        return
    await root.claim()
    if stored.is_deleted:
        # Who deletes it takes the manifests that are there by now, or wait in the lane of small files; no later one.
        return
    now_ms = services.clock.wall_ms()
    topic = str(TopicName.from_managed_ledger_name(stored.name))
    await root.write_manifest(directory, Manifest(topic, created_ms, version, now_ms, tuple(ledgers)))


def _ours(info: LedgerInfo) -> OffloadRecord | None:
    record = record_of(info)
    return record if record is not None and record.is_ours else None


async def _look_up(
    root: Root, directory: str, stored: tuple[int, int, int, int], record: OffloadRecord
) -> ManifestLedger | None:
    """What a manifest says of a ledger; None: its file can not be read now, readers have it from the broker."""
    ledger_id, entries, size_bytes, closed_ms = stored
    try:
        file = await root.open(directory, ledger_id, record.uid)
        file_bytes = await root.size_bytes(directory, ledger_id, record.uid)
    except StorageError as error:
        _log.error("ledger %d is left out of a manifest: %s", ledger_id, error)
        return None
    contents = file.contents
    return ManifestLedger(
        ledger_id,
        record.uid,
        ledger_file(ledger_id, record.uid),
        entries,
        size_bytes,
        closed_ms,
        file_bytes,
        contents.rows,
        contents.messages,
        contents.first_publish_ms,
        contents.last_publish_ms,
    )
