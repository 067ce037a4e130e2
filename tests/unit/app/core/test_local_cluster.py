"""What a cluster on one machine is asked to be, and what is written down of its processes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.local.core.local_cluster import (
    OWN_BOOKIE_KEYS,
    OWN_BROKER_KEYS,
    ZOOKEEPERS,
    ClusterState,
    LocalMember,
    MemberKind,
    MemberState,
    Plan,
    change_plan,
    decode_state,
    encode_state,
    member_names,
    settings_from,
)
from geminga.model.errors import ConfigurationError, DataDirectoryError

TEXTS = st.text(max_size=20)
SETTINGS = st.dictionaries(TEXTS, TEXTS, max_size=3)
PORTS = st.dictionaries(TEXTS, st.integers(0, 65535), max_size=3)
PLANS = st.builds(
    Plan,
    cluster=TEXTS,
    bookies=st.integers(1, 32),
    brokers=st.integers(1, 32),
    zookeepers=st.sampled_from(ZOOKEEPERS),
    zookeeper_port=st.integers(0, 65535),
    broker_port=st.integers(0, 65535),
    web_port=st.integers(0, 65535),
    broker_settings=SETTINGS,
    bookie_settings=SETTINGS,
)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    state = ClusterState(draw(PLANS), (), draw(TEXTS))
    for kind in MemberKind:
        count = state.plan.zookeepers if kind is MemberKind.ZOOKEEPER else draw(st.integers(0, 3))
        for name in member_names(kind, count)[: draw(st.integers(0, 5))]:
            state = state.with_member(LocalMember(name, kind, draw(st.integers(2, 2**22)), draw(TEXTS), draw(PORTS)))
    return state


@given(states())
def test_what_is_written_is_read_again(state: ClusterState) -> None:
    assert decode_state(encode_state(state), "here") == state


@given(states(), st.data())
def test_a_damaged_document_is_refused_and_never_read_as_another_shape(
    state: ClusterState, data: st.DataObject
) -> None:
    document = json.loads(encode_state(state))
    key = data.draw(st.sampled_from(sorted(document)))
    if data.draw(st.booleans()):
        del document[key]
    else:
        document[key] = data.draw(st.sampled_from([None, -1, 1.5, True, [1], {"a": 1}]))
    with pytest.raises(DataDirectoryError, match="here is damaged"):
        decode_state(json.dumps(document), "here")


@pytest.mark.parametrize("name", ["bookie-1/../..", "bookie", "broker-1", "bookie-", "bookie-²", ""])
def test_a_name_that_would_lead_elsewhere_is_damage(name: str) -> None:
    document = json.loads(encode_state(ClusterState(Plan(), (LocalMember("bookie-1", MemberKind.BOOKIE, 9, "s"),))))
    document["members"][0]["name"] = name
    with pytest.raises(DataDirectoryError, match="damaged"):
        decode_state(json.dumps(document), "here")


def test_two_members_of_one_name_and_a_pid_that_none_has_are_damage() -> None:
    member = LocalMember("bookie-1", MemberKind.BOOKIE, 2, "s")
    written = encode_state(ClusterState(Plan(), (member,)))
    assert decode_state(written, "here").members == (member,)
    document = json.loads(written)
    document["members"] *= 2
    with pytest.raises(DataDirectoryError, match="damaged"):
        decode_state(json.dumps(document), "here")
    for pid in (0, 1):
        document = json.loads(written)
        document["members"][0]["pid"] = pid
        with pytest.raises(DataDirectoryError, match=f"damaged.*pid {pid}"):
            decode_state(json.dumps(document), "here")


def test_a_newer_document_is_refused_as_that() -> None:
    with pytest.raises(DataDirectoryError, match="format 3, and this program knows formats up to 2"):
        decode_state('{"format": 3, "all": "else"}', "here")


def test_several_servers_of_zookeeper_are_told_together_and_by_a_format_of_their_own() -> None:
    alone, several = ClusterState(Plan()), ClusterState(Plan(zookeepers=3))
    assert json.loads(encode_state(alone))["format"] == 1
    assert json.loads(encode_state(several))["format"] == 2
    assert (alone.metadata_url, several.metadata_url) == ("", "")
    for number in (2, 1, 3):
        member = LocalMember(f"zookeeper-{number}", MemberKind.ZOOKEEPER, 7, "a", {"client": number})
        several = several.with_member(member)
    assert several.metadata_url == "zk:127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    assert decode_state(encode_state(several), "here") == several
    with pytest.raises(DataDirectoryError, match="damaged"):
        decode_state(encode_state(several).replace('"zookeepers": 3', '"zookeepers": 4'), "here")


def test_members_stand_in_the_order_of_the_start() -> None:
    state = ClusterState(Plan())
    for name in ("broker-1", "bookie-10", "bookie-2", "zookeeper"):
        state = state.with_member(LocalMember(name, MemberKind(name.partition("-")[0]), 7, "a"))
    state = state.with_member(LocalMember("bookie-2", MemberKind.BOOKIE, 8, "b"))
    assert [(member.name, member.pid) for member in state.members] == [
        ("zookeeper", 7),
        ("bookie-2", 8),
        ("bookie-10", 7),
        ("broker-1", 7),
    ]


@pytest.mark.parametrize(
    ("started_now", "is_ready", "state"),
    [
        (None, False, MemberState.GONE),
        ("later", True, MemberState.REPLACED),
        ("then", False, MemberState.NOT_READY),
        ("then", True, MemberState.READY),
    ],
)
def test_a_pid_alone_is_not_a_process(started_now: str | None, is_ready: bool, state: MemberState) -> None:
    assert LocalMember("bookie-1", MemberKind.BOOKIE, 7, "then").state(started_now, is_ready=is_ready) is state


def test_what_was_asked_before_holds_until_it_is_asked_anew() -> None:
    first = change_plan(Plan(), {"bookies": 1, "broker_settings": {"a": "1", "b": "2"}}, is_new=True)
    second = change_plan(first, {"bookies": 2, "brokers": None, "broker_settings": {"b": "3"}}, is_new=False)
    assert (second.bookies, second.brokers, second.broker_settings) == (2, 2, {"a": "1", "b": "3"})
    assert first.quorums() == dict.fromkeys(
        (f"managedLedgerDefault{word}" for word in ("EnsembleSize", "WriteQuorum", "AckQuorum")), "1"
    )
    assert second.quorums() == {}
    assert change_plan(second, {"bookies": 2, "zookeepers": 1, "cluster": "local"}, is_new=False) == second


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"bookies": 0}, "--bookies 0: expected a whole number from 1"),
        ({"zookeepers": 2}, "--zookeepers 2: expected 1 or 3 or 5"),
        ({"zookeepers": 0}, "--zookeepers 0: expected"),
        ({"zookeepers": 3}, "--zookeepers 3: this cluster has 1"),
        ({"bookies": 2}, "--bookies 2: there are 3 with data"),
        ({"cluster": "b"}, "--cluster b: this cluster is called local"),
        ({"cluster": "a/b"}, "--cluster 'a/b'"),
        ({"broker_port": 65536}, "--broker-port 65536"),
        ({"web_port": 6650}, "expected different ports"),
    ],
)
def test_what_can_not_be_is_refused_by_its_option(asked: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        change_plan(Plan(), asked, is_new=False)


def test_keys_that_the_command_sets_itself_are_refused() -> None:
    assert settings_from("--set", ["a=b=c", " d = e "], OWN_BROKER_KEYS) == {"a": "b=c", "d": "e"}
    with pytest.raises(ConfigurationError, match="--set a: expected KEY=VALUE"):
        settings_from("--set", ["a"], OWN_BROKER_KEYS)
    with pytest.raises(ConfigurationError, match="webServicePort: geminga cluster sets it itself; use --web-port"):
        settings_from("--set", ["webServicePort=1"], OWN_BROKER_KEYS)
    with pytest.raises(ConfigurationError, match=r"bookieId: .* bookies are named by their directories"):
        settings_from("--bookie-set", ["bookieId=x"], OWN_BOOKIE_KEYS)
