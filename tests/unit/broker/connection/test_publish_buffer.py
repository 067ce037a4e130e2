"""The bound on publishes in memory."""

from __future__ import annotations

from geminga.broker.connection.publish_buffer import PublishBuffer


class Publisher:
    """Counts how often it may go on."""

    def __init__(self) -> None:
        self.resumed = 0

    def publish_buffer_has_room(self) -> None:
        self.resumed += 1


def test_publishers_over_the_bound_go_on_at_half_of_it() -> None:
    buffer = PublishBuffer(100)
    publisher, other = Publisher(), Publisher()
    assert not buffer.add(100, publisher)
    assert buffer.add(1, publisher)
    assert buffer.add(1, other)
    buffer.forget(other)
    buffer.remove(51)
    assert publisher.resumed == 0
    buffer.remove(1)
    assert (publisher.resumed, other.resumed) == (1, 0)
    buffer.remove(50)
    assert publisher.resumed == 1
    assert buffer.size_bytes == 0
