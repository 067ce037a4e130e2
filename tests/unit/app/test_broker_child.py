"""A broker process of a standalone, without its process: found by the others while it serves, gone with its session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from geminga.app.configuration.core.log_options import LogOptions
from geminga.app.servers.broker_child import ChildBrokerServer
from geminga.app.servers.core.broker_children import Assignment, ChildPlan
from geminga.app.storage.data_directory import METADATA_SOCKET, bookie_socket
from geminga.bookie.serving import TakenPort
from geminga.bookkeeper import MemoryBookie
from geminga.broker.failures import BrokenPart
from geminga.broker.ownership.core.broker_data import BROKERS_PATH
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.metadata.socket.server import MetadataServer
from geminga.model.errors import ConfigurationError, MetadataError
from geminga.runtime import real_runtime, wait_ms
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, encode_local_service_info
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX
from support.house.real_runtimes import close_runtime

TOKEN = "t"


def fatal(part: str, error: BaseException) -> None:
    raise AssertionError(f"fatal in {part}: {error!r}")


def plan(directory: Path, *entries: Assignment, token: str = TOKEN) -> ChildPlan:
    return ChildPlan(0, "broker-0.1", str(directory), token, LogOptions(), 0, 0, 30_000, entries)


@asynccontextmanager
async def storage(directory: Path) -> AsyncIterator[tuple[MetadataServer, MemoryMetadataStore]]:
    """What the process of the storage has: who serves its metadata, and a session with them."""
    runtime, state = real_runtime(fatal), MemoryMetadata()

    async def open_session() -> MemoryMetadataStore:
        return MemoryMetadataStore(runtime, state)

    metadata = await MetadataServer.listen(runtime, str(directory / METADATA_SOCKET), open_session, token=TOKEN)
    own = await open_session()
    path = str(directory / bookie_socket("bookie"))
    served = await (await TakenPort.take_local(runtime, path)).serve(MemoryBookie(), FRAME_BYTES_MAX)
    info = encode_local_service_info(path)
    await own.put(f"{AVAILABLE_PATH}/127.0.0.1:3181", info, expected_version=None, ephemeral=True)
    yield metadata, own
    await served.close()
    await metadata.close()
    await close_runtime(runtime)


def test_it_is_registered_while_it_serves_and_gone_when_it_has_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        async with storage(tmp_path) as (metadata, own):
            with pytest.raises(MetadataError, match="another life of the standalone"):
                await ChildBrokerServer(plan(tmp_path, token="earlier"), on_fatal=fatal).start()

            child = ChildBrokerServer(plan(tmp_path), on_fatal=fatal)
            addresses = await child.start()
            name = f"127.0.0.1:{addresses.web_port}"
            node = await own.get(f"{BROKERS_PATH}/{name}")
            assert node is not None
            assert json.loads(node.value)["pulsarServiceUrl"] == addresses.broker_service_url
            assert [told for _, told in metadata.sessions()] == ["broker-0.1"]
            assert await child.stop()
            assert await own.children(BROKERS_PATH) == []
            assert metadata.sessions() == []

    asyncio.run(main())


@pytest.mark.parametrize("work", ["load", "brokers"])
def test_what_nobody_thought_of_in_its_part_of_the_cluster_does_not_end_it(tmp_path: Path, work: str) -> None:
    """No part heard of it: it was fatal, and the broker ended at once with all that it served."""
    told: list[BaseException] = []

    def broken(*_: object) -> NoReturn:
        raise KeyError("nobody thought of it")

    async def main() -> None:
        async with storage(tmp_path) as (_, own):
            child = ChildBrokerServer(plan(tmp_path), on_fatal=lambda _, error: told.append(error))
            await child.start()
            assert child.broker is not None
            assert child._membership is not None
            assert child._load is not None
            if work == "load":
                child._load._stats = broken
                child._load.settings_changed()
            else:
                child._membership.brokers.listen(broken)
                await own.put(f"{BROKERS_PATH}/b:1", b'{"pulsarServiceUrl":"pulsar://b:2"}', expected_version=None)
            counts = child.broker.failures.counts
            async with asyncio.timeout(30):
                while not counts[BrokenPart.BROKER] and not told:
                    await wait_ms(1)
            assert told == []
            assert await child.stop()

    asyncio.run(main())


def test_setting_of_the_standalone_that_is_bad_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="maxMessageSize=much"):
        ChildBrokerServer(plan(tmp_path, Assignment("maxMessageSize", "much", "--set")), on_fatal=fatal)
