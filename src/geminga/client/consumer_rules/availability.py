"""Whether a topic has a message that a consumer has not received, from what the broker says of it."""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol


class Id(Protocol):
    """A message's id, in the order of the topic."""

    def entry_id(self) -> int:
        """-1: there is no such message."""
        ...

    def __gt__(self, other: Any, /) -> bool: ...  # noqa: ANN401 - as its implementation

    def __ge__(self, other: Any, /) -> bool: ...  # noqa: ANN401 - as its implementation


class Start(Enum):
    """Where a subscription began, if not at a message."""

    #: At the place it had, or at the topic's beginning: everything acknowledged is behind it.
    SUBSCRIPTION = 0
    #: Behind what was the last message then, which is what it has acknowledged.
    LATEST = 1


def is_available(last: Id, *, marked: Id | None, received: Id | None, start: Id | Start, is_inclusive: bool) -> bool:
    """Whether ``last``, the topic's last message, is still to come.

    ``marked``: up to where the subscription is acknowledged, None if the broker does not say; ``received``: what the
    application received last, None: nothing since the start. ``is_inclusive``: the message at ``start`` comes, too.
    """
    if last.entry_id() < 0:
        return False
    if received is not None:
        return last > received
    if start is Start.SUBSCRIPTION:
        return marked is None or last > marked
    if start is Start.LATEST:
        return marked is not None and marked.entry_id() >= 0 and last > marked
    return last >= start if is_inclusive else last > start
