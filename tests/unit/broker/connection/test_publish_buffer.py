"""The bound on publishes in memory."""

from __future__ import annotations

from geminga.broker.connection.publish_buffer import PublishBuffer


class Publisher:
    """Counts how often it may go on."""

    def __init__(self) -> None:
        self.resumed = 0

    def publish_buffer_has_room(self) -> None:
        self.resumed += 1


def test_publishers_over_the_bound_go_on_when_half_of_it_is_free() -> None:
    buffer = PublishBuffer(100)
    publisher, other = Publisher(), Publisher()
    buffer.hold(publisher)
    buffer.hold(publisher)
    buffer.hold(other)
    buffer.forget(other)
    assert publisher.resumed == 0
    buffer.free()
    assert (publisher.resumed, other.resumed) == (1, 0)
    assert not buffer.held
    buffer.free()
    assert publisher.resumed == 1
