"""``geminga metadata copy``: the metadata of a stopped standalone, copied to the ZooKeeper of a cluster-to-be.

The directory is locked, so that one in use is refused and none can be started. It is noted in the directory whose copy
lies where, before anything is written and when all is equal: from then on no standalone starts in it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, NoReturn

from geminga.app.storage.data_directory import (
    FORMAT_FILE,
    METADATA_FILE,
    MetadataMove,
    claim_directory,
    read_move,
    write_move,
)
from geminga.bookie.registration import draw_cluster_id
from geminga.bookkeeper.ledger_ids import (
    ID_GENERATOR_PATH,
    LONG_ID_GENERATOR_PATH,
    keep_ids_above,
    next_ledger_id,
)
from geminga.metadata import MetadataStore, SqliteMetadataStore
from geminga.metadata.copying import MetadataCopy, NodeSource, OnProgress, scan
from geminga.metadata.core.copying import Marker
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress, check_request, check_zookeeper_path
from geminga.model.errors import DataDirectoryError, MetadataError
from geminga.runtime import Runtime, crash_point, real_runtime
from geminga.runtime.local_file import reason_at
from geminga.version import __version__
from geminga.wire.bookkeeper.bookie_registration import COOKIES_PATH, INSTANCE_ID_PATH

#: What a cluster has and a standalone need not.
ADDED: Final = (LONG_ID_GENERATOR_PATH, INSTANCE_ID_PATH)
COUNTED_ELSEWHERE: Final = (ID_GENERATOR_PATH, LONG_ID_GENERATOR_PATH)
_ID_BYTES: Final = 8

NOTED: Final = "metadata.copy.noted"
SETTLED: Final = "metadata.copy.settled"


class Copied(NamedTuple):
    """What a copy came to."""

    target: str
    nodes: int
    value_bytes: int
    digest: str
    next_ledger_id: int
    #: Whether an earlier attempt had begun it.
    was_resumed: bool
    #: Whether an earlier one had ended it: nothing was done but to say so.
    was_done: bool


class SourceDirectory(NamedTuple):
    """Where the source lies, and what it noted."""

    runtime: Runtime
    directory: str


async def copy_directory(directory: str, address: ZooKeeperAddress, on_progress: OnProgress) -> Copied:
    """Copy the metadata of ``directory``. Raises GemingaError with a sentence, OSError; the same call goes on then."""
    runtime = real_runtime(_stop)
    try:
        await _check_is_there(runtime, directory)
        program = f"geminga {__version__}"
        await claim_directory(runtime.disk, directory, pid=os.getpid(), program=program, may_be_moved=True)
        source = await SqliteMetadataStore.open(runtime, os.path.join(directory, METADATA_FILE))
        try:
            return await copy_metadata(
                SourceDirectory(runtime, directory),
                source,
                source,
                lambda: _open(runtime, address),
                address,
                on_progress,
            )
        finally:
            await source.close()
    finally:
        await runtime.disk.close()
        await runtime.threads.close()


async def copy_metadata(
    origin: SourceDirectory,
    nodes: NodeSource,
    source: MetadataStore,
    open_target: Callable[[], Awaitable[MetadataStore]],
    address: ZooKeeperAddress,
    on_progress: OnProgress,
) -> Copied:
    """See the module; ``nodes`` and ``source`` are one tree. Raises GemingaError."""
    runtime, directory = origin
    name = str(address)

    def check(path: str, value: bytes) -> None:
        check_zookeeper_path(path)
        check_request(address.chroot + path, value)

    move = await read_move(runtime.disk, directory)
    if move is not None and move.is_done and move.to != name:
        raise DataDirectoryError(f"{directory} was moved already: its metadata are in {move.to} since, not in {name}")
    # One id for all attempts: the same ZooKeeper may be written in several ways.
    move = MetadataMove(name, runtime.rng.token(_ID_BYTES), is_done=False) if move is None else move._replace(to=name)
    found = await scan(nodes, name, check)
    next_id = await next_ledger_id(source)
    has_bookies = bool(await source.children(COOKIES_PATH))
    target = await open_target()
    try:
        copy = MetadataCopy(
            nodes,
            target,
            Marker(move.copy_id, directory),
            name,
            of=found.nodes,
            added=ADDED,
            counted_elsewhere=COUNTED_ELSEWHERE,
            on_progress=on_progress,
        )
        if move.is_done:
            if not await target.children("/ledgers" if has_bookies else "/"):
                raise DataDirectoryError(
                    f"{directory} was moved to {name}, which is empty now: was it removed there? To copy it once more, "
                    f"take moved out of {os.path.join(directory, FORMAT_FILE)}"
                )
            # Whoever was killed after this was noted has left the marker.
            await copy.end()
            return Copied(name, *found, next_ledger_id=next_id, was_resumed=False, was_done=True)
        await copy.look()
        await write_move(runtime.disk, directory, move)
        crash_point(NOTED)
        await copy.begin()
        await copy.write()
        await copy.count()
        await keep_ids_above(target, next_id - 1)
        if has_bookies:
            await draw_cluster_id(target, runtime)
        written = await copy.compare()
        copied_id = await next_ledger_id(target)
        if written != found or copied_id < next_id:
            raise MetadataError(
                f"{name} holds {written} with ids from {copied_id} on, expected {found} with ids from {next_id} on"
            )
        await write_move(runtime.disk, directory, move._replace(is_done=True))
        crash_point(SETTLED)
        await copy.end()
        return Copied(name, *written, next_ledger_id=copied_id, was_resumed=copy.is_resumed, was_done=False)
    finally:
        await target.close()


async def _check_is_there(runtime: Runtime, directory: str) -> None:
    try:
        names = await runtime.disk.list_dir(directory)
    except OSError as error:
        raise DataDirectoryError(f"{directory}: {reason_at(error, directory)}") from error
    for name in (FORMAT_FILE, METADATA_FILE):
        if name not in names:
            raise DataDirectoryError(f"{directory} is no data directory of a standalone: it holds no {name}")


async def _open(runtime: Runtime, address: ZooKeeperAddress) -> MetadataStore:
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore

    return await ZooKeeperMetadataStore.open(runtime, address)


def _stop(part: str, error: BaseException) -> NoReturn:
    raise SystemExit(f"geminga: stopped by a fatal error in {part}: {str(error) or type(error).__name__}")
