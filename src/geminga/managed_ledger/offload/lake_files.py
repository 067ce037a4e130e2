"""Lake files are deleted: noted in metadata before the list loses them, so that what fails or is cut off is done later.

Each note is a node below :data:`ROOT` (docs/formats/lake.md). It goes when its file is gone, or when an hour later the
list names the file still: then the change that it was written for never came.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.managed_ledger.shared.services import StorageServices
from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import CorruptionError, StorageError
from geminga.model.topic_name import encode_again
from geminga.runtime import Rng, all_ended, crash_point, get_logger
from geminga.wire.managed_ledger import decode_managed_ledger_info
from geminga.wire.managed_ledger.offload_context import decode_offload_context

ROOT: Final = "/geminga/lake-deletions"
#: Of a note whose file is still named.
STALE_MS: Final = 3600 * 1000
_ERROR_CHARACTERS_MAX: Final = 500
#: Files of one root in a row that can not be deleted, until its others are left for later.
FAILURES_MAX: Final = 8
#: Notes on their way: whoever trims has the list's lock, for which others wait who subscribe or need a ledger.
NOTED_AT_ONCE: Final = 100
_VERSION: Final = 1
_log = get_logger(__name__)


class FileDeletion(NamedTuple):
    """A file that is to go."""

    #: The managed ledger.
    name: str
    #: When it was made, ms since the epoch.
    created_ms: int
    ledger_id: int
    uid: str
    driver: str
    properties: Mapping[str, str]
    written_ms: int
    #: Not before this: what was restored stays for the deletion lag.
    not_before_ms: int = 0
    #: Why it could not be done the last time.
    error: str = ""


def _path(uid: str) -> str:
    return f"{ROOT}/{uid}"


def _encode(deletion: FileDeletion) -> bytes:
    document = {
        "version": _VERSION,
        "name": deletion.name,
        "createdMs": deletion.created_ms,
        "ledgerId": deletion.ledger_id,
        "uid": deletion.uid,
        "driver": deletion.driver,
        "properties": dict(deletion.properties),
        "writtenMs": deletion.written_ms,
        "notBeforeMs": deletion.not_before_ms,
        "error": deletion.error,
    }
    return json.dumps(document).encode()


def _decode(value: bytes, path: str) -> FileDeletion:
    try:
        document: dict[str, Any] = json.loads(value)
        if int(document["version"]) > _VERSION:
            raise CorruptionError(f"{path}: version {document['version']}, newer than {_VERSION}")
        return FileDeletion(
            encode_again(str(document["name"])),
            int(document["createdMs"]),
            int(document["ledgerId"]),
            str(document["uid"]),
            str(document["driver"]),
            {str(key): str(text) for key, text in document["properties"].items()},
            int(document["writtenMs"]),
            int(document["notBeforeMs"]),
            str(document["error"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{path}: {error}") from error


async def note(
    services: StorageServices, name: str, created_ms: int, infos: Iterable[LedgerInfo], *, not_before_ms: int = 0
) -> list[FileDeletion]:
    """Before the list loses these ledgers, or what is registered of them. Raises MetadataError."""
    noted: list[FileDeletion] = []
    for info in infos:
        if not info.offload_context:
            continue
        record = decode_offload_context(info.offload_context)
        if not record.is_ours:
            _log.warning("%s: ledger %d goes; what %r has of it stays", name, info.ledger_id, record.driver)
            continue
        now_ms = services.clock.wall_ms()
        deletion = FileDeletion(
            name, created_ms, info.ledger_id, record.uid, record.driver, record.properties, now_ms, not_before_ms
        )
        noted.append(deletion)
    for start in range(0, len(noted), NOTED_AT_ONCE):
        window = noted[start : start + NOTED_AT_ONCE]
        await all_ended(_put(services.metadata, each) for each in window)
    if noted:
        crash_point(points.LAKE_DELETION_NOTED)
    return noted


async def _put(metadata: MetadataStore, deletion: FileDeletion) -> None:
    value = _encode(deletion)
    await cas.update(metadata, _path(deletion.uid), lambda present: None if present == value else value)


async def carry_out(services: StorageServices, deletions: Sequence[FileDeletion]) -> int:
    """Delete files that no list names; how many are left. Each failure is noted and told, and done again later.

    A bucket that is away answers after minutes: of a root where nothing goes the rest is left for later.
    """
    left = 0
    in_a_row: Counter[str] = Counter()
    for deletion in deletions:
        root = json.dumps((deletion.driver, dict(deletion.properties)), sort_keys=True)
        if deletion.not_before_ms > services.clock.wall_ms() or in_a_row[root] == FAILURES_MAX:
            left += 1
            continue
        try:
            await _delete(services, deletion)
            in_a_row[root] = 0
        except StorageError as error:
            left, in_a_row[root] = left + 1, in_a_row[root] + 1
            told = f"{deletion.name}: the file of ledger {deletion.ledger_id}, {deletion.uid}"
            _log.warning("%s, was not deleted, it is tried again: %s", told, error)
            await _tell(services, deletion, str(error))
    return left


async def _delete(services: StorageServices, deletion: FileDeletion) -> None:
    from geminga.lake.core.names import topic_directory

    root = await services.lake().root(deletion.driver, deletion.properties)
    directory = topic_directory(deletion.name)
    await root.forget(directory, deletion.uid)
    await root.delete(directory, deletion.ledger_id, deletion.uid)
    crash_point(points.LAKE_FILE_DELETED)
    node = await services.metadata.get(ledger_path(deletion.name))
    if node is None or node.stat.created_ms > deletion.created_ms:
        await root.delete_topic(directory, deletion.created_ms)
    await cas.remove(services.metadata, _path(deletion.uid))


async def _tell(services: StorageServices, deletion: FileDeletion, error: str) -> None:
    try:
        await _put(services.metadata, deletion._replace(error=error[:_ERROR_CHARACTERS_MAX]))
    except StorageError as failure:
        _log.warning("%s: %s", _path(deletion.uid), failure)


async def waiting(metadata: MetadataStore) -> list[FileDeletion]:
    """What is noted, in no order. Raises MetadataError."""
    found: list[FileDeletion] = []
    for uid in await metadata.children(ROOT):
        node = await metadata.get(_path(uid))
        if node is not None:
            try:
                found.append(_decode(node.value, _path(uid)))
            except CorruptionError as error:
                _log.error("a note about a lake file that is to be deleted can not be read: %s", error)
    return found


async def retry(services: StorageServices, rng: Rng) -> int:
    """Delete what earlier attempts left, of all topics; how many are left. Raises MetadataError.

    What failed before comes last, and begins anywhere: else what fails for ever would keep others from their turn.
    """
    due: list[FileDeletion] = []
    left = 0
    for deletion in await waiting(services.metadata):
        try:
            is_named = await _is_named(services.metadata, deletion)
        except CorruptionError as error:
            # Also what a newer version wrote. Other topics' files do not wait for it.
            left += 1
            told = f"{deletion.name}: the file of ledger {deletion.ledger_id}, {deletion.uid}"
            _log.error("%s, stays: the topic's list can not be read: %s", told, error)
            continue
        if not is_named:
            due.append(deletion)
        elif services.clock.wall_ms() - deletion.written_ms >= STALE_MS:
            await cas.remove(services.metadata, _path(deletion.uid))
        else:
            left += 1
    fresh, failed = [one for one in due if not one.error], [one for one in due if one.error]
    begin = rng.below(len(failed)) if failed else 0
    return left + await carry_out(services, [*fresh, *failed[begin:], *failed[:begin]])


async def _is_named(metadata: MetadataStore, deletion: FileDeletion) -> bool:
    node = await metadata.get(ledger_path(deletion.name))
    if node is None:
        return False
    for ledger in decode_managed_ledger_info(node.value).ledgers:
        if ledger.offload_context and decode_offload_context(ledger.offload_context).uid == deletion.uid:
            return True
    return False
