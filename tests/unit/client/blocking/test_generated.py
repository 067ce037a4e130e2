"""The blocking classes agree with the asynchronous ones, name by name."""

from __future__ import annotations

import inspect

import pytest
from tools.generate_blocking import generate

import geminga.client
from geminga.client import blocking
from geminga.client.blocking import _client, _consumer, _facade, _listeners, _producer, _reader, _table_view

MODULES = {
    "Client": _client,
    "Producer": _producer,
    "Consumer": _consumer,
    "Reader": _reader,
    "TableView": _table_view,
    "Transaction": blocking._transaction,
}


def test_checked_in_modules_are_what_the_generator_gives() -> None:
    pytest.importorskip("ruff")
    assert [p.name for p, text in generate().items() if p.read_text(encoding="utf-8") != text] == []


def test_both_packages_export_the_same_names() -> None:
    assert set(blocking.__all__) == set(geminga.client.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_methods_take_the_same_parameters_and_are_documented(name) -> None:
    ours, theirs = getattr(MODULES[name], name), getattr(geminga.client, name)
    assert getattr(blocking, name) is ours
    methods = {m: f for m, f in vars(ours).items() if not m.startswith("_")}
    assert methods
    for method, function in methods.items():
        assert function.__doc__, method
        if inspect.isfunction(function):
            assert not inspect.iscoroutinefunction(function)
            here = list(inspect.signature(function).parameters.values())
            there = list(inspect.signature(getattr(theirs, method)).parameters.values())
            assert [(p.name, p.kind, p.default) for p in here] == [(p.name, p.kind, p.default) for p in there]


def test_hand_written_parts_hold_no_signature_of_the_client() -> None:
    for module in (_facade, _listeners):
        names = {name for name, value in vars(module).items() if inspect.isclass(value) or inspect.isfunction(value)}
        assert not names & {"Client", "Consumer", "TableView"}
