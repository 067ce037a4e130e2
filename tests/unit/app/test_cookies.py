"""What metadata remembers of a bookie."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.app.storage.cookies import COOKIES_PATH, remember_instance_id, remembered_instance_id
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import CorruptionError, DataDirectoryError
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie, decode_bookie_cookie, encode_bookie_cookie

BOOKIE = "127.0.0.1:3181"
INSTANCE = "0123456789abcdef" * 2


def test_instance_id_is_remembered_once() -> None:
    async def main(world: sim.SimWorld) -> None:
        metadata = MemoryMetadataStore(world.node("n").runtime)
        assert await remembered_instance_id(metadata, BOOKIE) is None
        await remember_instance_id(metadata, BOOKIE, INSTANCE, "/data/bookie")
        assert await remembered_instance_id(metadata, BOOKIE) == INSTANCE
        await remember_instance_id(metadata, BOOKIE, INSTANCE, "/data/bookie")
        with pytest.raises(DataDirectoryError, match="another bookie"):
            await remember_instance_id(metadata, BOOKIE, "f" * 32, "/data/bookie")
        node = await metadata.get(f"{COOKIES_PATH}/{BOOKIE}")
        assert node is not None
        # The names of the fields are BookKeeper's.
        own = BookieCookie(BOOKIE, ("/data/bookie",), ("/data/bookie",), INSTANCE)
        assert decode_bookie_cookie(node.value, "node") == own
        assert node.value == encode_bookie_cookie(own)

    sim.run(main)


def test_cookie_that_is_none_is_corruption() -> None:
    async def main(world: sim.SimWorld) -> None:
        metadata = MemoryMetadataStore(world.node("n").runtime)
        await metadata.put(f"{COOKIES_PATH}/{BOOKIE}", b"junk\xff", expected_version=-1)
        with pytest.raises(CorruptionError, match="no cookie"):
            await remembered_instance_id(metadata, BOOKIE)

    sim.run(main)
