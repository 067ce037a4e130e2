"""From the ids of rows that were read to the option ``startingOffsets`` of the next query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName
from geminga.spark.rules.option_values import OptionError
from geminga.spark.source_rules.offsets import ReadPosition, StreamOffset

if TYPE_CHECKING:
    from geminga.client import MessageId


def starting_offsets(ids: Mapping[str, bytes | MessageId] | Iterable[Any], *, inclusive: bool = False) -> str:
    """The option ``startingOffsets`` of a query that goes on behind messages, per topic behind the last of them.

    ``ids``: a mapping of topic to message id, or rows with ``__topic`` and ``__messageId`` (of ``collect()``), or pairs
    of the two. An id is a :class:`geminga.client.MessageId`, or its bytes as in the column ``__messageId``; that of a
    partition's message says itself which one. Topics that are not among them begin at their beginning.
    ``inclusive``: begin with the message instead of behind it. Raises :class:`OptionError` for what is no topic or no
    id, and for no rows at all.

    Ids do not sort as bytes: to find the last row of a topic let this function see all of a batch's rows, or order by
    ``__publishTime`` first and give a few.
    """
    positions: dict[str, ReadPosition] = {}
    pairs: Iterable[Any] = ids.items() if isinstance(ids, Mapping) else ids
    for pair in pairs:
        topic, position = _position(pair, inclusive)
        known = positions.get(topic)
        positions[topic] = position if known is None else max(known, position)
    if not positions:
        raise OptionError("starting_offsets: no rows, so there is no place to begin at")
    return StreamOffset(positions).to_json()


def _position(pair: object, inclusive: bool) -> tuple[str, ReadPosition]:
    given_topic, given = _pair(pair)
    if not isinstance(given_topic, str):
        raise OptionError(f"starting_offsets: {given_topic!r} is no topic: expected its name")
    try:
        name = TopicName.parse(given_topic)
    except InvalidTopicNameError as error:
        raise OptionError(f"starting_offsets: {given_topic!r} is no topic: {error}") from None
    try:
        found = _message_id(given)
    except ValueError as error:
        raise OptionError(f"starting_offsets: {given!r} of {name} is no message id: {error}") from None
    entry = found.ledger_id(), found.entry_id()
    is_of_partition = found.partition() >= 0 and name.partition < 0
    topic = f"{name}-partition-{found.partition()}" if is_of_partition else str(name)
    if inclusive:
        return topic, ReadPosition(*entry, max(found.batch_index(), 0))
    following = found.batch_index() + 1
    is_last = found.batch_index() < 0 or following == found.batch_size()
    return topic, ReadPosition(entry[0], entry[1] + 1) if is_last else ReadPosition(*entry, following)


def _pair(given: Any) -> tuple[object, object]:  # noqa: ANN401 - a row, which is PySpark's, or a pair
    try:
        first, second = (given["__topic"], given["__messageId"]) if hasattr(given, "asDict") else given
    except (ValueError, TypeError, LookupError):
        raise OptionError(
            f"starting_offsets: {given!r} is neither a row with __topic and __messageId nor a pair of the two"
        ) from None
    return first, second


def _message_id(given: object) -> MessageId:
    """Raises ValueError for what is none, or names no place of a message."""
    from geminga.client import MessageId

    if not isinstance(given, MessageId | bytes | bytearray | memoryview):
        raise ValueError("expected bytes, or a MessageId")
    found = given if isinstance(given, MessageId) else MessageId.deserialize(bytes(given))
    if found.ledger_id() < 0 or found.entry_id() < 0 or found == MessageId.latest:
        raise ValueError("it is no place of a message; use earliest or latest")
    return found
