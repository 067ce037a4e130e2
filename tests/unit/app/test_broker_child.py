"""A broker process of a standalone, without its process: found by the others while it serves, gone with its session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from geminga.app.configuration.core.log_options import LogOptions
from geminga.app.servers.broker_child import ChildBrokerServer
from geminga.app.servers.core.broker_children import Assignment, ChildPlan
from geminga.app.storage.data_directory import METADATA_SOCKET, bookie_socket
from geminga.bookie.serving import TakenPort
from geminga.bookkeeper import MemoryBookie
from geminga.broker.ownership.core.broker_data import BROKERS_PATH
from geminga.metadata import MemoryMetadata, MemoryMetadataStore
from geminga.metadata.socket.server import MetadataServer
from geminga.model.errors import ConfigurationError, MetadataError
from geminga.runtime import real_runtime
from geminga.wire.bookkeeper.bookie_registration import AVAILABLE_PATH, encode_local_service_info
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX

TOKEN = "t"


def fatal(part: str, error: BaseException) -> None:
    raise AssertionError(f"fatal in {part}: {error!r}")


def plan(directory: Path, *entries: Assignment, token: str = TOKEN) -> ChildPlan:
    return ChildPlan(0, "broker-0.1", str(directory), token, LogOptions(), 0, 0, 30_000, entries)


def test_it_is_registered_while_it_serves_and_gone_when_it_has_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        runtime, state = real_runtime(fatal), MemoryMetadata()

        async def open_session() -> MemoryMetadataStore:
            return MemoryMetadataStore(runtime, state)

        metadata = await MetadataServer.listen(runtime, str(tmp_path / METADATA_SOCKET), open_session, token=TOKEN)
        own = await open_session()
        path = str(tmp_path / bookie_socket("bookie"))
        served = await (await TakenPort.take_local(runtime, path)).serve(MemoryBookie(), FRAME_BYTES_MAX)
        info = encode_local_service_info(path)
        await own.put(f"{AVAILABLE_PATH}/127.0.0.1:3181", info, expected_version=None, ephemeral=True)

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

        await served.close()
        await metadata.close()
        await runtime.threads.close()
        await runtime.disk.close()

    asyncio.run(main())


def test_setting_of_the_standalone_that_is_bad_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="maxMessageSize=much"):
        ChildBrokerServer(plan(tmp_path, Assignment("maxMessageSize", "much", "--set")), on_fatal=fatal)
