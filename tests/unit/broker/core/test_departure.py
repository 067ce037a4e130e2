"""A departure keeps clients as they came, and sends nobody anything."""

from __future__ import annotations

from geminga.broker.core.departure import DepartingClient, Departure
from geminga.model.topic_name import TopicName


class Connection:
    listener = "out"

    def write_soon(self, data: bytes) -> None:
        raise AssertionError(f"{data!r} was sent")


def test_clients_are_kept_in_the_order_in_which_they_were_to_be_told() -> None:
    names = [TopicName.parse(f"persistent://t/n/{number}") for number in range(3)]
    departure = Departure(lambda name: name != names[2])
    connection = Connection()

    def farewell(url: str, url_tls: str) -> bytes:
        return f"{url}{url_tls}".encode()

    for name in (names[1], names[0], names[1]):
        departure.add(name, connection, farewell)
    kept = [DepartingClient(name, connection, farewell, None) for name in (names[1], names[0], names[1])]
    assert departure.clients == kept
    assert [departure.topics(name) for name in names] == [True, True, False]
