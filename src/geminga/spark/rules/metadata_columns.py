"""The metadata columns a row may have beside its value: names, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.spark.rules.option_values import OptionError

KEY: Final = "__key"
TOPIC: Final = "__topic"
MESSAGE_ID: Final = "__messageId"
PUBLISH_TIME: Final = "__publishTime"
EVENT_TIME: Final = "__eventTime"
PROPERTIES: Final = "__messageProperties"
PARTITION: Final = "__partition"
REDELIVERY_COUNT: Final = "__redeliveryCount"
PRODUCER_NAME: Final = "__producerName"
SEQUENCE_ID: Final = "__sequenceId"
SCHEMA_VERSION: Final = "__schemaVersion"
#: Why a message does not fit its columns, which are null then.
INVALID: Final = "__invalid"

#: Those of pulsar-spark.
DEFAULT_COLUMNS: Final = (KEY, TOPIC, MESSAGE_ID, PUBLISH_TIME, EVENT_TIME, PROPERTIES)
ALL_COLUMNS: Final = (
    *DEFAULT_COLUMNS,
    PARTITION,
    REDELIVERY_COUNT,
    PRODUCER_NAME,
    SEQUENCE_ID,
    SCHEMA_VERSION,
    INVALID,
)


def check_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The names as they are written above, in the order given; raises OptionError for others or doubles."""
    known = {name.lower(): name for name in ALL_COLUMNS}
    found = []
    for name in names:
        column = known.get(name.lower())
        if column is None or column in found:
            raise OptionError(f"metadataColumns: {name!r}: expected, each once, some of {', '.join(ALL_COLUMNS)}")
        found.append(column)
    return tuple(found)
