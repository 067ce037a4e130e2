"""The tables of commands: each name and option once in its place, and functions for those that have one."""

from __future__ import annotations

from collections import Counter

import pytest

from geminga.app.administration import rows_cluster, rows_namespaces, rows_policies, rows_topics, special
from geminga.app.administration.command import parsed
from geminga.app.administration.groups import GROUPS, commands_of
from geminga.app.administration.units import KINDS

TABLES = [
    *(
        getattr(module, name)
        for module in (rows_cluster, rows_topics, rows_namespaces)
        for name in dir(module)
        if name.isupper() and "_" not in name[:1]
    )
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.partition(" ")[0])
def test_a_table_has_each_command_once(table: str) -> None:
    names = Counter(command.name for command in parsed("group", table))
    assert names
    assert max(names.values()) == 1


def test_policies_are_three_commands_each() -> None:
    for commands in (rows_policies.topics(), rows_policies.topic_policies(), rows_policies.namespaces()):
        verbs = Counter(command.name.partition("-")[0] for command in commands)
        assert verbs["get"] == verbs["set"] == verbs["remove"] > 20


@pytest.mark.parametrize("group", GROUPS)
def test_options_of_a_command_have_names_of_their_own_and_kinds(group: str) -> None:
    for command in commands_of(group).values():
        names = [name for option in command.options for name in option.names]
        assert len(names) == len(set(names)), command.words
        kinds = {option.kind for option in command.options if "/" not in option.kind}
        assert kinds <= {*KINDS, "SNI"}, command.words


def test_functions_are_those_of_rows() -> None:
    used = {command.function for group in GROUPS for command in commands_of(group).values() if command.function}
    assert used == set(special.FUNCTIONS)
