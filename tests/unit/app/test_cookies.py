"""What metadata remembers of a bookie."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.app.cookies import COOKIES_PATH, remember_instance_id, remembered_instance_id
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import CorruptionError, DataDirectoryError

BOOKIE = "127.0.0.1:3181"
INSTANCE = "0123456789abcdef" * 2


def test_instance_id_is_remembered_once() -> None:
    async def main(world: sim.SimWorld) -> None:
        metadata = MemoryMetadataStore(world.node("n").runtime)
        assert await remembered_instance_id(metadata, BOOKIE) is None
        await remember_instance_id(metadata, BOOKIE, INSTANCE, "/data/book\tie")
        assert await remembered_instance_id(metadata, BOOKIE) == INSTANCE
        await remember_instance_id(metadata, BOOKIE, INSTANCE, "/data/bookie")
        with pytest.raises(DataDirectoryError, match="another bookie"):
            await remember_instance_id(metadata, BOOKIE, "f" * 32, "/data/bookie")
        node = await metadata.get(f"{COOKIES_PATH}/{BOOKIE}")
        assert node is not None
        assert node.value.startswith(b'5\nbookieHost: "127.0.0.1:3181"\n')

    sim.run(main)


def test_cookie_that_is_none_is_corruption() -> None:
    async def main(world: sim.SimWorld) -> None:
        metadata = MemoryMetadataStore(world.node("n").runtime)
        await metadata.put(f"{COOKIES_PATH}/{BOOKIE}", b"junk\xff", expected_version=-1)
        with pytest.raises(CorruptionError, match="no cookie"):
            await remembered_instance_id(metadata, BOOKIE)

    sim.run(main)
