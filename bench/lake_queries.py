"""What the lake's bench reads of a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple


class Query(NamedTuple):
    """One of them."""

    of: Callable[[Any], Any]
    #: Spark does not tell a Python source which columns a query uses: its user does.
    source_options: Mapping[str, str]


ALL: Final = "all columns"
QUERIES: Final[Mapping[str, Query]] = {
    ALL: Query(lambda frame: frame, {}),
    "value, event time, key": Query(
        lambda frame: frame.select("value", "__eventTime", "__key"), {"metadataColumns": "__eventTime,__key"}
    ),
    "count by key": Query(lambda frame: frame.groupBy("__key").count(), {"metadataColumns": "__key"}),
    "count": Query(lambda frame: frame.groupBy().count(), {"metadataColumns": ""}),
}
