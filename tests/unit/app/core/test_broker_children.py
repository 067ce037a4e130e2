"""What broker processes are told, and when they are started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.configuration.core.log_options import LogOptions
from geminga.app.servers.core.broker_children import (
    RESTART_S_MAX,
    RESTART_S_MIN,
    SERVED_S,
    SILENT_LOOKS_MAX,
    STARTING_LOOKS_MAX,
    Assignment,
    ChildPlan,
    Hearing,
    Restarts,
    child_entries,
    decode_plan,
    ports_of,
    refuse_shared_ports,
)
from geminga.model.errors import ConfigurationError

TEXTS = st.text(max_size=20)
PLANS = st.builds(
    ChildPlan,
    st.integers(0, 63),
    TEXTS,
    TEXTS,
    TEXTS,
    st.builds(LogOptions, TEXTS, TEXTS, TEXTS, st.integers(), st.integers()),
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.integers(1, 1 << 31),
    st.lists(st.builds(Assignment, TEXTS, TEXTS, TEXTS, st.booleans()), max_size=4).map(tuple),
)


@given(PLANS)
def test_a_plan_is_one_line_and_read_as_written(plan) -> None:
    line = plan.encode()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_plan(line) == plan


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b"[]\n", b"null\n", b'{"entries": [[1]]}\n', b"\xff\n"])
def test_what_is_no_plan_says_who_starts_these_processes(line: bytes) -> None:
    with pytest.raises(ConfigurationError, match="started by geminga standalone --brokers"):
        decode_plan(line)


def test_ports_of_a_process_win_over_those_of_the_standalone() -> None:
    given_ports = (Assignment("brokerServicePort", "6650", "--set"), Assignment("clusterName", "c", "--set"))
    plan = ChildPlan(1, "n", "/d", "t", LogOptions(), 0, 0, 30_000, given_ports)
    latest = {entry.key: entry.text for entry in child_entries(plan)}
    assert latest == {"brokerServicePort": "0", "webServicePort": "0", "clusterName": "c"}


@pytest.mark.parametrize(("number", "row", "expected"), [(0, "false", "6651"), (2, "false", "0"), (2, "true", "6653")])
def test_port_with_tls_is_another_for_each_process(number: int, row: str, expected: str) -> None:
    given_ports = (Assignment("brokerServicePortTls", "6651", "f"), Assignment("gemingaConsecutivePorts", row, "f"))
    plan = ChildPlan(
        number, "n", "/d", "t", LogOptions(), 0, 0, 30_000, (*given_ports, Assignment("webServicePortTls", "", "f"))
    )
    latest = {entry.key: entry.text for entry in child_entries(plan)}
    assert (latest["brokerServicePortTls"], latest["webServicePortTls"]) == (expected, "")


def test_plain_ports_stay_where_processes_reach_each_other_by_them() -> None:
    refuse_shared_ports([Assignment("brokerServicePort", "", "f"), Assignment("webServicePortTls", "1", "f")])
    with pytest.raises(ConfigurationError, match=r"webServicePort= \(f\): with --brokers .* beside webServicePortTls"):
        refuse_shared_ports([Assignment("webServicePort", "", "f"), Assignment("webServicePortTls", "1", "f")])


def test_ports_behind_the_first_ones_where_they_are_asked_for() -> None:
    assert ports_of(3, 6650, 8080, is_consecutive=False) == [(6650, 8080), (0, 0), (0, 0)]
    assert ports_of(3, 6650, 8080, is_consecutive=True) == [(6650, 8080), (6651, 8081), (6652, 8082)]
    assert ports_of(2, 65533, 65534 - 2, is_consecutive=False)[0] == (65533, 65532)
    assert ports_of(2, 65534, 65532, is_consecutive=True) == [(65534, 65532), (65535, 65533)]


@pytest.mark.parametrize(
    ("count", "broker_port", "web_port"), [(2, 0, 8080), (2, 6650, 0), (3, 6650, 6652), (2, 65535, 8080)]
)
def test_rows_of_ports_that_meet_or_end_are_refused(count: int, broker_port: int, web_port: int) -> None:
    with pytest.raises(ConfigurationError, match=f"gemingaConsecutivePorts.*webServicePort={web_port}.*in common"):
        ports_of(count, broker_port, web_port, is_consecutive=True)


@pytest.mark.parametrize("key", ["bindAddresses", "advertisedListeners", "internalListenerName"])
def test_addresses_of_one_process_are_refused_unless_they_are_empty(key: str) -> None:
    refuse_shared_ports([Assignment(key, "  ", "file"), Assignment("bindAddress", "0.0.0.0", "file")])
    with pytest.raises(ConfigurationError, match=rf"{key}=x \(broker.conf:7\): with --brokers"):
        refuse_shared_ports([Assignment(key, "", "file"), Assignment(key, "x", "broker.conf:7")])


def test_who_ends_again_and_again_is_waited_for_longer_up_to_a_limit() -> None:
    restarts = Restarts()
    waits = [restarts.wait_s(0.1) for _ in range(10)]
    assert waits[:3] == [RESTART_S_MIN, 2 * RESTART_S_MIN, 4 * RESTART_S_MIN]
    assert waits[-2:] == [RESTART_S_MAX, RESTART_S_MAX]
    assert restarts.wait_s(SERVED_S) == RESTART_S_MIN


def test_one_that_was_heard_once_hangs_after_so_many_looks_without_it() -> None:
    hearing = Hearing()
    for _ in range(STARTING_LOOKS_MAX - 1):
        hearing.look(is_heard=False)
        assert (hearing.fell_silent, hearing.hangs) == (False, False), "it starts"
    for _ in range(2):
        hearing.look(is_heard=True)
        for look in range(1, SILENT_LOOKS_MAX):
            hearing.look(is_heard=False)
            assert (hearing.fell_silent, hearing.hangs) == (look == 1, False)
    hearing.look(is_heard=False)
    assert hearing.hangs


def test_one_that_was_never_heard_hangs_too_and_sooner_where_it_is_to_end() -> None:
    starting, ending = Hearing(), Hearing()
    for hearing, looks, is_to_end in ((starting, STARTING_LOOKS_MAX, False), (ending, SILENT_LOOKS_MAX, True)):
        for _ in range(looks):
            assert not hearing.hangs
            hearing.look(is_heard=False, is_to_end=is_to_end)
        assert hearing.hangs
