"""``bin/pulsar zookeeper-shell`` on a store in memory; on a real ZooKeeper: ``make image-test``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from geminga.app.container.zookeeper_shell import act, instance_id, run_shell
from geminga.app.lifecycle.process_life import end_at_once
from geminga.metadata import MemoryMetadataStore
from geminga.model.errors import ConfigurationError
from geminga.runtime import real_runtime
from support.house.real_runtimes import close_runtime


def test_commands_on_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> list[int]:
        runtime = real_runtime(end_at_once)
        store = MemoryMetadataStore(runtime)
        done = [
            await act(store, "get", ("/admin",)),
            await act(store, "create", ("/admin", "v")),
            await act(store, "create", ("/admin/b", "é")),
            await act(store, "set", ("/admin", "w")),
            await act(store, "get", ("/admin",)),
            await act(store, "ls", ("/admin",)),
            await act(store, "stat", ("/admin/b",)),
            await act(store, "delete", ("/admin/b",)),
            await act(store, "get", ("/admin/b",)),
        ]
        await store.close()
        await close_runtime(runtime)
        return done

    assert asyncio.run(main()) == [1, 0, 0, 0, 0, 0, 0, 0, 1]
    out, err = capsys.readouterr()
    assert out == "Created /admin\nCreated /admin/b\nw\n[b]\ndataVersion = 0\ndataLength = 2\n"
    assert err == "Node does not exist: /admin\nNode does not exist: /admin/b\n"


def test_words_that_are_refused_before_anything_connects(tmp_path: Path) -> None:
    conf = tmp_path / "bookkeeper.conf"
    conf.write_text("metadataServiceUri=\n")
    for words, why in (
        ([], "expected one of create, delete, get"),
        (["get"], "get: expected PATH"),
        (["set", "/a"], "expected PATH VALUE, not /a"),
        (["ls", "/a"], "names no metadata store"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            run_shell(words, str(conf), {})
    with pytest.raises(ConfigurationError, match="names no metadata store"):
        instance_id(str(conf), {})
