"""Clients of a process: of more configurations than it keeps, who is used stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from geminga import Standalone
from geminga.spark.process import clients
from geminga.spark.process.clients import CLIENTS_MAX, session_for
from geminga.spark.rules.client_options import ClientConfiguration


@pytest.fixture
def configurations() -> Iterator[list[ClientConfiguration]]:
    """More than are kept, of one broker; their clients are closed in the end."""
    before = dict(clients._sessions)
    clients._sessions.clear()
    with Standalone() as broker:
        yield [
            ClientConfiguration(broker.service_url, (("description", str(number)),))
            for number in range(2 * CLIENTS_MAX)
        ]
        for session in clients._sessions.values():
            session.blocking.close()
    clients._sessions.clear()
    clients._sessions.update(before)


def test_one_more_closes_the_client_that_nobody_uses(configurations: list[ClientConfiguration]) -> None:
    used = session_for(configurations[0])
    producer = used.blocking.create_producer("t")
    sessions = [session_for(each) for each in configurations[1:CLIENTS_MAX]]
    assert session_for(configurations[1]) is sessions[0]  # asked for again
    session_for(configurations[CLIENTS_MAX])
    assert [session.client.is_closed for session in (used, *sessions[:3])] == [False, False, True, False]
    for each in configurations[CLIENTS_MAX:]:
        session_for(each)
    producer.send(b"still there")
    assert all(session.client.is_closed for session in sessions)
    assert len(clients._sessions) == CLIENTS_MAX
    # With all in use it is the one that was asked for before all others.
    for each in configurations[CLIENTS_MAX + 1 :]:
        session_for(each).blocking.create_producer("t")
    session_for(configurations[1])
    assert used.client.is_closed
