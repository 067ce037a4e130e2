"""What a subscription was given, counted."""

from __future__ import annotations

from tools.chaos.load import Delivered


def test_what_comes_again_is_no_disorder_and_what_comes_late_for_the_first_time_is() -> None:
    delivered = Delivered()
    for number in (0, 1, 2, 1, 2, 5, 3, 4, 5, 6):
        delivered.see(number)
    assert delivered.numbers == set(range(7))
    assert delivered.again == 3
    assert delivered.out_of_order == [3, 4]
    assert delivered.has({0, 6})
    assert not delivered.has({0, 7})
