"""What the product defines the product uses, or there is a reason here why only tests do."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

import pytest

from support.house.source_tree import ROOT
from support.house.used_names import Defined, product_trees, trees_below, unused, uses_of

#: Who uses the product beside itself and tests.
USERS = ("bench", "demo", "tools", "examples")

_INVERSE = "the other half of a codec: tests hold each to the other, and write what Apache's brokers and bookies would"
_LOOK = "a look that tests need at what is otherwise seen only when it goes wrong"
_MEMORY = "a memory implementation of a port, which has what a test does to the real one from outside"
_SHELL = "what BookKeeper's shell writes, and the auditor reads"

#: "module name" -> why only tests use it. What is not there any more goes from here.
REASONS: Mapping[str, str] = {
    "bookkeeper/memory.py MemoryBookie.come_back": _MEMORY,
    "bookkeeper/memory.py MemoryBookie.corrupt": _MEMORY,
    "bookkeeper/memory.py MemoryBookie.forget_entry": _MEMORY,
    "bookkeeper/memory.py MemoryBookie.forget_ledger": _MEMORY,
    "bookkeeper/memory.py MemoryBookie.go_down": _MEMORY,
    "broker/load_rules/histories.py decode_averages": _INVERSE,
    "broker/transactions/alarm.py HeldBackAlarm.is_looking": _LOOK,
    "broker/transactions/snapshot_records.py encode_indexes": _INVERSE,
    "broker/transactions/snapshot_records.py encode_snapshot": _INVERSE,
    "client/_transport/listeners.py Listeners.has_consumer": _LOOK,
    "client/_transport/pool.py ConnectionPool.open_connections": _LOOK,
    "client/consumer_rules/batch_acker.py BatchAcker.acknowledge_all": "one of the core's events, as the oracle has it",
    "managed_ledger/log/tail.py Tail.listener_count": _LOOK,
    "runtime/network.py AsyncioListener.handshakes_under_way": _LOOK,
    "metadata/memory.py MemoryMetadataStore.expire_session": _MEMORY,
    "metadata/sqlite.py SqliteMetadataStore.expire_session": _MEMORY,
    "metadata/zookeeper/kazoo_thread.py KazooHandler.async_result": "kazoo calls it",
    "metadata/zookeeper/kazoo_thread.py KazooHandler.dispatch_callback": "kazoo calls it",
    "replication/marks.py UnderReplicatedLedgers.set_enabled": _SHELL,
    "replication/marks.py UnderReplicatedLedgers.set_recovery_delay": _SHELL,
    "spark/source/batch_reader.py FilteringBatchReader.pushFilters": "Spark calls it",
    "transaction/logs.py MemoryRecordLog": _MEMORY,
    "wire/bookkeeper/under_replication.py decode_lock": _INVERSE,
    "wire/bookkeeper/under_replication.py decode_vote": _INVERSE,
    "wire/pulsar/frame.py encode_frame_head": _INVERSE,
    "wire/pulsar/transaction_log.py encode_pending_ack_records": _INVERSE,
    "wire/pulsar/transaction_log.py encode_transaction_records": _INVERSE,
}


def name_violations(found: Iterable[Defined], reasons: Iterable[str], used_by_tests: Iterable[str]) -> list[str]:
    """``found``: what the product and its users do not use; the simulator is there for tests."""
    reasons, used_by_tests = set(reasons), set(used_by_tests)
    rows = {f"{each.module} {each.name}": each for each in found if not each.module.startswith("sim/")}
    lines = [
        f"{row}: {'only tests use' if each.name.rpartition('.')[2] in used_by_tests else 'nobody uses'} it"
        for row, each in rows.items()
        if row not in reasons
    ]
    return lines + [f"{row} is used, or not there any more: its reason goes" for row in sorted(reasons - rows.keys())]


def test_every_name_of_the_product_is_used_by_more_than_tests() -> None:
    users = trees_below(*(ROOT / folder for folder in USERS)).values()
    found = unused(product_trees(), users)
    if name_violations(found, REASONS, ()):
        tests = {name for tree in trees_below(ROOT / "tests").values() for name in uses_of(tree)}
        pytest.fail("\n".join(name_violations(found, REASONS, tests)))


SAMPLE = {
    "__init__.py": "__all__ = ['Shown']",
    "a.py": """
class Shown:
    def of_it(self): ...
class Store(Base):
    def used(self): ...
    def unused(self): ...
class Base: ...
class Protocolled(asyncio.Protocol):
    def called_by_asyncio(self): ...
@commands.command('list')
def listed(): ...
LIMIT = 1
""",
    "b.py": "from a import Store, LIMIT, renamed as other\nStore().used()\nother()",
    "c.py": "def renamed(): ...",
}


def test_what_nobody_uses_is_found() -> None:
    trees = {path: ast.parse(text) for path, text in SAMPLE.items()}
    names = [f"{each.module} {each.name}" for each in unused(trees, [])]
    assert names == ["a.py Store.unused", "a.py Protocolled", "a.py LIMIT"]
    assert [each.name for each in unused(trees, [ast.parse("x.of_it(Protocolled, LIMIT, unused=1)")])] == []


def test_a_reason_is_needed_and_goes_with_its_name() -> None:
    found = [Defined("a.py", "Store.unused"), Defined("sim/a.py", "cut")]
    assert name_violations(found, ["a.py Store.unused"], []) == []
    assert name_violations(found, [], ["unused"]) == ["a.py Store.unused: only tests use it"]
    (line,) = name_violations(found[1:], ["a.py gone"], [])
    assert line == "a.py gone is used, or not there any more: its reason goes"
    assert name_violations(found, [], []) == ["a.py Store.unused: nobody uses it"]
