"""The life of a topic: open until it is closed, idle since it was last used, and where its clients are sent."""

from __future__ import annotations

import pytest

from geminga.broker.core.departure import DepartingClient, Departure
from geminga.broker.publishing.life import TopicLife
from geminga.model.errors import TopicClosingError
from geminga.model.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/topic")


class StoppedClock:
    """Time goes on when it is told to."""

    now_s = 5.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0


class Written:
    """A connection that keeps what it is given."""

    listener = ""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    @property
    def output(self) -> Written:
        return self

    def write_soon(self, data: bytes) -> None:
        self.data.append(data)


def farewell(url: str, url_tls: str) -> bytes:
    return f"{url} {url_tls}".encode()


def test_a_topic_is_open_until_it_is_closed() -> None:
    life = TopicLife(NAME, StoppedClock())
    life.check_open()
    life.close()
    with pytest.raises(TopicClosingError, match=f"Topic {NAME} is being unloaded or deleted"):
        life.check_open()


def test_idle_time_begins_anew_with_each_use() -> None:
    clock = StoppedClock()
    life = TopicLife(NAME, clock)
    clock.now_s += 2.5
    assert life.idle_ms == 2500
    life.touch()
    assert life.idle_ms == 0


def test_clients_are_sent_away_at_once_unless_there_is_a_departure() -> None:
    life, connection = TopicLife(NAME, StoppedClock()), Written()
    life.send_away(connection, farewell, lambda: pytest.fail("it is told at once"))
    assert connection.data == [b" "]
    departure = Departure(lambda name: name == NAME)
    life.close(departure)
    life.close()  # it broke meanwhile: its clients are still told who has it
    told: list[str] = []
    life.send_away(connection, farewell, lambda: lambda: told.append("told"))
    (client,) = departure.clients
    assert connection.data == [b" "]
    assert isinstance(client, DepartingClient)
    assert client.told is not None
    client.told()
    assert told == ["told"]
