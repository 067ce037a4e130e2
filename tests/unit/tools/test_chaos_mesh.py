"""Which links are cut and who is killed comes from the seed alone; a link that is cut passes nothing, and then all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest
from tools.chaos.links import Links
from tools.chaos.mesh_plan import CUT_EVERY_S, CUT_S, mesh_plan

CLUSTERS = ("east", "west", "north")
SIZES = {"bookies": 3, "brokers": 2, "session_s": 6.0}


def test_a_seed_makes_one_plan_with_as_many_cuts_and_kills() -> None:
    cuts, kills = mesh_plan(1, CLUSTERS, cuts=50, kills=20, **SIZES)  # type: ignore[arg-type]
    assert (len(cuts), len(kills)) == (50, 20)
    assert mesh_plan(1, CLUSTERS, cuts=50, kills=20, **SIZES) == (cuts, kills)  # type: ignore[arg-type]
    assert mesh_plan(2, CLUSTERS, cuts=50, kills=20, **SIZES) != (cuts, kills)  # type: ignore[arg-type]
    assert all(CUT_S[0] <= cut.until_s - cut.at_s <= CUT_S[1] for cut in cuts)
    assert {cut.hangs for cut in cuts} == {True, False}
    assert {kill.who.split("-")[0] for kill in kills} == {"bookie", "broker"}
    assert max(kill.at_s for kill in kills) <= 50 * CUT_EVERY_S
    assert {(cut.source, cut.target) for cut in cuts} == {(a, b) for a in CLUSTERS for b in CLUSTERS if a != b}


@pytest.mark.parametrize("seed", range(5))
def test_no_link_is_cut_while_it_is(seed: int) -> None:
    cuts, _ = mesh_plan(seed, CLUSTERS, cuts=50, kills=0, **SIZES)  # type: ignore[arg-type]
    for link in {(cut.source, cut.target) for cut in cuts}:
        own = [cut for cut in cuts if (cut.source, cut.target) == link]
        assert all(former.until_s <= later.at_s for former, later in pairwise(own))
    assert [cut.at_s for cut in cuts] == sorted(cut.at_s for cut in cuts)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def accepted(server: socket.socket) -> socket.socket:
    server.settimeout(10)
    one, _ = server.accept()
    one.settimeout(10)
    return one


@pytest.fixture
def links() -> Iterator[Links]:
    made = Links()
    yield made
    made.close()


def test_a_link_that_is_reset_loses_its_connections_and_gets_none(links: Links) -> None:
    port, other = links.forward("there"), links.forward("elsewhere")
    with socket.create_server(("127.0.0.1", 0)) as server:
        for each in (port, other):
            links.lead(each, server.getsockname())
        with (
            connected(port) as one,
            accepted(server) as there,
            connected(other) as beside,
            accepted(server) as elsewhere,
        ):
            one.sendall(b"first")
            assert there.recv(10) == b"first"
            there.sendall(b"answer")
            assert one.recv(10) == b"answer"
            links.cut("there", hangs=False)
            for end in (one, there):
                with pytest.raises(ConnectionResetError):
                    end.recv(10)
            with connected(port) as late:
                assert has_ended(late)
            beside.sendall(b"second")
            assert elsewhere.recv(10) == b"second"
        links.mend("there")
        with connected(port) as one, accepted(server) as there:
            one.sendall(b"third")
            assert there.recv(10) == b"third"


def test_what_was_sent_on_a_link_that_hangs_comes_when_it_is_mended(links: Links) -> None:
    port = links.forward("there")
    with socket.create_server(("127.0.0.1", 0)) as server:
        links.lead(port, server.getsockname())
        with connected(port) as one, accepted(server) as there:
            links.cut("there", hangs=True)
            one.sendall(b"first")
            with connected(port) as late:
                late.sendall(b"late")
                server.settimeout(0.05)
                there.settimeout(0.05)
                with pytest.raises(TimeoutError):
                    there.recv(10)
                with pytest.raises(TimeoutError):
                    server.accept()
                links.mend("there")
                there.settimeout(10)
                assert there.recv(10) == b"first"
                with accepted(server) as second:
                    assert second.recv(10) == b"late"


def test_a_port_that_leads_nowhere_yet_takes_nothing(links: Links) -> None:
    with connected(links.forward("there")) as one:
        assert has_ended(one)


def has_ended(one: socket.socket) -> bool:
    try:
        return one.recv(10) == b""
    except ConnectionResetError:
        return True
