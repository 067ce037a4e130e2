"""Imports point down, packages form no cycle, cores are pure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.house.floors import FLOORS, crowded_folders, floor_violations
from support.house.source_tree import SourceModule, imports_of, product_modules
from support.house.tidy_rules import (
    LAYERS,
    WHOLES,
    import_cycles,
    layer_violations,
    private_violations,
    purity_violations,
    whole_violations,
)

KNOWN = frozenset(module.name for module in product_modules())


def test_product_imports_follow_the_layer_table() -> None:
    found = [line for module in product_modules() for line in layer_violations(module, KNOWN)]
    assert not found, "\n".join(found)


def test_layer_table_has_no_cycle() -> None:
    packages = {name: targets - {""} for name, targets in LAYERS.items()}
    assert import_cycles(packages) == []


def test_modules_import_each_other_without_a_cycle() -> None:
    graph = {
        module.name: [i.target for i in imports_of(module, KNOWN) if not i.is_deferred] for module in product_modules()
    }
    assert import_cycles(graph) == []


def test_every_folder_stands_on_lower_ones() -> None:
    found = floor_violations(product_modules())
    assert not found, "\n".join(found)
    assert len(set(FLOORS)) == len(FLOORS)


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        ({"geminga.low.a": "", "geminga.high.b": "from geminga.low import a"}, ""),
        ({"geminga.low.a": "from geminga.high import b", "geminga.high.b": ""}, "'high' stands above 'low'"),
        (
            {"geminga.low.a": "if TYPE_CHECKING:\n    from geminga.high.b import B", "geminga.high.b": ""},
            "'high' stands above 'low'",
        ),
        (
            {"geminga.low.core.a": "def f():\n    import geminga.high.b", "geminga.high.b": ""},
            "'high' stands above 'low'",
        ),
        ({"geminga.low.a": ""}, "'high' is in the table and is no folder"),
        ({"geminga.low.a": "", "geminga.high.b": "", "geminga.new.c": ""}, "'new' is not in the table"),
    ],
)
def test_planted_import_of_a_higher_floor_is_caught(modules: dict[str, str], says: str) -> None:
    planted = [SourceModule(name, text) for name, text in modules.items()]
    found = floor_violations(planted, ("low", "high"), pure=frozenset())
    assert [says in line for line in found] == [True] * bool(says)


def test_folder_that_is_to_be_pure_is_there() -> None:
    planted = [SourceModule("geminga.low.a", "")]
    assert floor_violations(planted, ("low",), pure=frozenset({"low.core"})) == [
        "'low.core' is to be pure and is no folder"
    ]


def test_no_folder_is_a_hall() -> None:
    """A newcomer reads a folder's names at a glance."""
    assert crowded_folders(product_modules()) == {}
    assert crowded_folders([SourceModule(f"geminga.hall.m{number}", "") for number in range(3)], 2) == {
        "geminga.hall": 3
    }


def test_cores_import_nothing_that_reaches_the_world() -> None:
    found = [line for module in product_modules() for line in purity_violations(module, KNOWN)]
    assert not found, "\n".join(found)


def test_parts_do_not_know_the_composition_that_joins_them() -> None:
    found = [line for module in product_modules() for line in whole_violations(module, KNOWN)]
    assert not found, "\n".join(found)
    assert set(WHOLES) <= KNOWN


def test_others_use_the_clients_public_names_only() -> None:
    found = [line for module in product_modules() for line in private_violations(module, KNOWN)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (layer_violations, "geminga.model.x", "from geminga.runtime import spawn"),
        (layer_violations, "geminga.bookie.x", "def f():\n    import geminga.bookkeeper.ports"),
        (layer_violations, "geminga.broker.x", "from geminga import Standalone"),
        (layer_violations, "geminga.app.x", "from geminga.sim import run"),
        (layer_violations, "geminga.broker.core.x", "from ...app.configuration import config"),
        (layer_violations, "geminga.plumbing.x", ""),
        (layer_violations, "geminga.client.x", "def f():\n    from geminga.broker import Broker"),
        (layer_violations, "geminga.client.x", "from geminga.managed_ledger import ManagedLedger"),
        (layer_violations, "geminga.client.x", "if TYPE_CHECKING:\n    from geminga.metadata import MetadataStore"),
        (layer_violations, "geminga.transaction.x", "from geminga.broker.topic.base import Topic"),
        (layer_violations, "geminga.transaction.x", "from geminga.client import Client"),
        (layer_violations, "geminga.managed_ledger.x", "from geminga.transaction import Coordinator"),
        (whole_violations, "geminga.client._reader", "from geminga.client._client import Client"),
        (whole_violations, "geminga.client._consuming.x", "def f():\n    from geminga.client import _client"),
        (private_violations, "geminga.spark.x", "from geminga.client._client import Client"),
        (private_violations, "geminga.app.x", "from geminga.client.schema._base import Schema"),
        (private_violations, "geminga.pytest_plugin", "if TYPE_CHECKING:\n    import geminga.client._messages.message"),
        (purity_violations, "geminga.broker.core.x", "import asyncio"),
        (purity_violations, "geminga.wire.pulsar.x", "from os import path"),
        (purity_violations, "geminga.broker.core.x", "from geminga.broker.topic.persistent import Topic"),
    ],
)
def test_planted_import_is_caught(
    rule: Callable[[SourceModule, frozenset[str]], list[str]], name: str, text: str
) -> None:
    assert rule(SourceModule(name, text), KNOWN) != []


def test_planted_cycle_is_caught() -> None:
    assert import_cycles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}) == ["a -> b -> c -> a"]


def test_allowed_imports_are_not_reported() -> None:
    module = SourceModule("geminga.broker.core.x", "from geminga.model import Position\nimport struct")
    assert layer_violations(module, KNOWN) == []
    assert purity_violations(module, KNOWN) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("geminga.broker.x", "from geminga.client import connect"),
        ("geminga.broker.x", "from geminga.transaction.ports import TransactionBuffer"),
        ("geminga.transaction.x", "from geminga.managed_ledger import ManagedLedger"),
    ],
)
def test_the_layers_have_room_for_what_a_broker_asks_of_others(name: str, text: str) -> None:
    assert layer_violations(SourceModule(name, text), KNOWN) == []
