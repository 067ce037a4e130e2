"""``bin/pulsar zookeeper-shell`` and ``bin/bookkeeper shell whatisinstanceid``: a look at a cluster's ZooKeeper."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from geminga.app.configuration.bookie_config import load_bookie_config
from geminga.app.container.core.options import options, read_options
from geminga.app.lifecycle.process_life import end_at_once
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress, parse_zookeeper_address
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import ConfigurationError, MetadataError
from geminga.wire.bookkeeper.bookie_registration import INSTANCE_ID_PATH

if TYPE_CHECKING:
    from geminga.metadata.ports import MetadataStore

_OPTIONS: Final = options("server: -server\n: -timeout")
_PROGRAM: Final = "bin/pulsar zookeeper-shell"
#: Name -> the operands that it needs.
COMMANDS: Final = {
    "create": ("PATH", "VALUE"),
    "delete": ("PATH",),
    "get": ("PATH",),
    "ls": ("PATH",),
    "set": ("PATH", "VALUE"),
    "stat": ("PATH",),
}


def run_shell(words: Sequence[str], conf: str, environment: Mapping[str, str]) -> int:
    """``[-server HOST:PORT] COMMAND PATH [VALUE]``; 1 where there is no such node.

    Without ``-server``: the store that ``conf`` names. Raises ConfigurationError, MetadataError.
    """
    said = read_options(_PROGRAM, words, _OPTIONS, ends_at_word=True)
    command, operands = (said.rest[0], said.rest[1:]) if said.rest else ("", ())
    needed = COMMANDS.get(command)
    if needed is None:
        raise ConfigurationError(f"{_PROGRAM} {command}: expected one of {', '.join(sorted(COMMANDS))}")
    if len(operands) != len(needed):
        raise ConfigurationError(f"{_PROGRAM} {command}: expected {' '.join(needed)}, not {' '.join(operands)}")
    server = said.last("server")
    address = parse_zookeeper_address(f"zk:{server}") if server else _configured(conf, environment)

    async def work(store: MetadataStore) -> int:
        return await act(store, command, operands)

    return _with_store(address, work)


def instance_id(conf: str, environment: Mapping[str, str]) -> int:
    """Print the id of the cluster's bookies; 1 where they have none yet. Raises ConfigurationError, MetadataError."""

    async def work(store: MetadataStore) -> int:
        node = await store.get(INSTANCE_ID_PATH)
        if node is None:
            print("no cluster of bookies is there yet (bin/bookkeeper shell initnewcluster)", file=sys.stderr)
            return 1
        print(f"Instance id of the cluster: {node.value.decode(errors='replace')}")
        return 0

    return _with_store(_configured(conf, environment), work)


async def act(store: MetadataStore, command: str, operands: Sequence[str]) -> int:
    """One of :data:`COMMANDS` with its operands; the exit code. Raises MetadataError."""
    path = operands[0]
    if command == "create":
        await store.put(path, operands[1].encode(), expected_version=MUST_NOT_EXIST)
        print(f"Created {path}")
        return 0
    node = await store.get(path)
    if node is None:
        print(f"Node does not exist: {path}", file=sys.stderr)
        return 1
    if command == "get":
        print(node.value.decode("utf-8", "backslashreplace"))
    elif command == "ls":
        print(f"[{', '.join(await store.children(path))}]")
    elif command == "stat":
        print(f"dataVersion = {node.stat.version}\ndataLength = {len(node.value)}")
    elif command == "set":
        await store.put(path, operands[1].encode(), expected_version=None)
    else:
        await store.delete(path)
    return 0


def _configured(conf: str, environment: Mapping[str, str]) -> ZooKeeperAddress:
    address = load_bookie_config((conf,), environment, ()).metadata
    if address is None:
        raise ConfigurationError(f"{conf} names no metadata store: expected -server HOST:PORT, or metadataServiceUri")
    return address


def _with_store(address: ZooKeeperAddress, work: Callable[[MetadataStore], Awaitable[int]]) -> int:
    from geminga.metadata.zookeeper import ZooKeeperMetadataStore
    from geminga.runtime import real_runtime

    async def working() -> int:
        runtime = real_runtime(end_at_once)
        try:
            store = await ZooKeeperMetadataStore.open(runtime, address)
            try:
                return await work(store)
            finally:
                await store.close()
        finally:
            await runtime.threads.close()
            await runtime.disk.close()

    try:
        return asyncio.run(working())
    except MetadataError as error:
        raise MetadataError(f"{address}: {error}") from error
