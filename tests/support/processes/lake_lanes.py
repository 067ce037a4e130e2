"""A process that writes and reads a file of a lake by all lanes, and tells what stays: MiB before, and behind.

``python -m support.processes.lake_lanes DIRECTORY``; a process of its own, for whatever ran before keeps memory too.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys

from geminga.lake.directory_store import DirectoryStore
from geminga.lake.ownership import Owner
from geminga.lake.parquet import GROUP_BYTES_MAX, LedgerFacts
from geminga.lake.service import Lake, StopSignal
from geminga.runtime import real_runtime
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from support.house.real_runtimes import close_runtime
from support.processes.hung_peers import rss_bytes

LANES = 4
GROUPS = 4
ENTRIES = GROUPS * 8
UID = "0123456789abcdef" * 2
_metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)


async def _owner() -> Owner:
    return Owner("here", "0" * 32)


async def _written(lake: Lake, number: int, entries: list[bytes]) -> None:
    root = await lake.root("filesystem", {})
    stop = StopSignal()
    lane = await lake.take_lane(root)
    facts = LedgerFacts("persistent://public/default/t", number, UID, len(entries), 1, 2, 3, "CRC32C", 1, 1, 1, {})
    file = await root.begin("t", facts, started_ms=1, writer="test", lane=lane, stop=stop)
    for entry in entries:
        await file.add([entry], frozenset())
    await file.finish([])
    lake.give_lane(root, lane)


def _fatal(_: str, error: BaseException) -> None:
    raise error


async def main(directory: str) -> None:
    """See the module."""
    runtime = real_runtime(_fatal)
    lake = Lake(
        runtime,
        lambda driver, properties: DirectoryStore(directory),
        _owner,
        offloads_max=2,
        readers=LANES,
        cache_bytes=0,
    )
    random_bytes = random.Random(1).randbytes  # what nothing compresses
    entries = [encode_entry(_metadata, random_bytes(GROUP_BYTES_MAX // 8)) for _ in range(ENTRIES)]
    os.mkdir(os.path.join(directory, "t"))
    # What is loaded with the first file stays.
    await _written(lake, 0, entries[:1])
    gc.collect()
    before = rss_bytes(os.getpid())
    await asyncio.gather(*(_written(lake, number, entries) for number in (1, 2)))
    root = await lake.root("filesystem", {})
    file = await root.open("t", 1, UID)
    for _ in range(2):
        read = await asyncio.gather(*(file.group(group) for group in range(GROUPS)))
        assert [entry for group in read for entry in group] == entries
        del read
    gc.collect()
    print(before >> 20, rss_bytes(os.getpid()) >> 20)
    await close_runtime(runtime)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
