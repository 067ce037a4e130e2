"""Names and properties of retry-letter and dead-letter topics, as Pulsar's clients set and read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from geminga.model import TopicName

RETRY_SUFFIX: Final = "-RETRY"
DEAD_LETTER_SUFFIX: Final = "-DLQ"
#: How often a message is redelivered at most if the policy does not say (Pulsar's MAX_RECONSUMETIMES).
REDELIVERIES_MAX_DEFAULT: Final = 16
#: Digits of a count that another client wrote; what has more is none.
COUNT_DIGITS_MAX: Final = 9

RECONSUME_TIMES: Final = "RECONSUMETIMES"
DELAY_TIME: Final = "DELAY_TIME"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
#: The message id as the Java client writes it; Pulsar's clients of different age read one or the other name.
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_ID_OLD: Final = "ORIGIN_MESSAGE_IDY_TIME"


def retry_letter_topic(topic: str, subscription: str) -> str:
    """The default retry-letter topic of a subscription: of the partitioned topic, not of its partition."""
    return f"{TopicName.parse(topic).partitioned_topic}-{subscription}{RETRY_SUFFIX}"


def dead_letter_topic(topic: str, subscription: str) -> str:
    """The default dead-letter topic of a subscription."""
    return f"{TopicName.parse(topic).partitioned_topic}-{subscription}{DEAD_LETTER_SUFFIX}"


def reconsume_times(properties: Mapping[str, str]) -> int:
    """How often the message went through the retry-letter topic already."""
    text = properties.get(RECONSUME_TIMES, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= COUNT_DIGITS_MAX else 0


def origin_properties(
    properties: Mapping[str, str], *, topic: str, subscription: str, message_id: str
) -> dict[str, str]:
    """The message's properties and where it first came from; what an earlier round noted stays."""
    result = dict(properties)
    result.setdefault(REAL_TOPIC, topic)
    result.setdefault(REAL_SUBSCRIPTION, subscription)
    result.setdefault(ORIGIN_MESSAGE_ID, message_id)
    result.setdefault(ORIGIN_MESSAGE_ID_OLD, message_id)
    return result


def retry_properties(origin: Mapping[str, str], *, times: int, delay_ms: int) -> dict[str, str]:
    """What a message carries into the retry-letter topic for the ``times``-th time, and into the dead-letter topic
    instead when that is too often."""
    return {**origin, RECONSUME_TIMES: str(times), DELAY_TIME: str(max(0, delay_ms))}


def message_id_text(
    ledger_id: int, entry_id: int, partition: int, batch_index: int, first_chunk: tuple[int, int] | None
) -> str:
    """``ledger:entry:partition``, with ``:index`` in a batch; of chunks the first one's, ``;`` and the last one's."""
    text = f"{ledger_id}:{entry_id}:{partition}"
    if batch_index >= 0:
        text += f":{batch_index}"
    return text if first_chunk is None else f"{first_chunk[0]}:{first_chunk[1]}:{partition};{text}"
