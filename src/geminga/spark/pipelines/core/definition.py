"""What a pipeline is: values that a file is parsed into, or that a program builds; docs/formats/pipeline.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

SOURCES_MAX: Final = 16
SERVICE_URL_DEFAULT: Final = "pulsar://localhost:6650"
#: Messages of a batch that a source takes where the file does not say: a bound for what one batch holds.
BATCH_MESSAGES_DEFAULT: Final = 100_000
BATCH_FILES_DEFAULT: Final = 100
MASTER_DEFAULT: Final = "local[2]"


class Guarantee(Enum):
    """What a batch that Spark runs again does to the topic of the sink."""

    EXACTLY_ONCE = "exactly-once"
    EFFECTIVELY_ONCE = "effectively-once"
    AT_LEAST_ONCE = "at-least-once"


#: Of a pipeline that does not say.
GUARANTEE_DEFAULT: Final = Guarantee.EXACTLY_ONCE


class Emit(Enum):
    """When a window is written."""

    FINAL = "final"
    CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the brokers are. ``options``: ``pulsar.client.*`` without the prefix."""

    service_url: str = SERVICE_URL_DEFAULT
    admin_url: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """What is read: topics or Parquet files."""

    #: Exactly one of the three is not empty.
    topics: tuple[str, ...] = ()
    pattern: str = ""
    parquet: str = ""
    name: str = ""
    #: DDL; empty: bytes, or what the files have.
    columns: str = ""
    #: A value that does not fit ``columns`` is null in all of them, instead of an error.
    keeps_invalid: bool = False
    #: Where messages go that do not fit, instead of being rows; empty: nowhere.
    bad_records_topic: str = ""
    is_from_registry: bool = False
    #: ``earliest``, ``latest`` or an ISO 8601 time.
    start: str = "earliest"
    #: None: the pipeline's name; empty: no subscription.
    subscription: str | None = None
    #: Of a batch; 0: no limit.
    messages_max: int = BATCH_MESSAGES_DEFAULT
    bytes_max: int = 0
    files_max: int = BATCH_FILES_DEFAULT
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_topic(self) -> bool:
        """Whether brokers are read, not files."""
        return not self.parquet


@dataclass(frozen=True, slots=True)
class Table:
    """What rows are joined with; read again with each batch."""

    name: str
    topic: str = ""
    parquet: str = ""
    columns: str = ""
    #: The column that gets the message's key.
    key: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Join:
    """Rows and a table that agree in the columns ``on``."""

    table: str
    on: tuple[str, ...]
    is_left: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """How much later than the newest event a row may come."""

    delay_ms: int
    #: The slowest source rules, not the fastest.
    is_of_each: bool = False


class WindowKind(Enum):
    """How event time is cut."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Window:
    """A window of event time; of a session, ``length_ms`` is the gap that ends it."""

    kind: WindowKind
    length_ms: int
    #: Of a sliding window: from one's start to the next's.
    every_ms: int = 0
    offset_ms: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go."""

    #: Exactly one of the four is not empty.
    topic: str = ""
    topic_of: str = ""
    parquet: str = ""
    table: str = ""
    #: Expressions; empty: the default.
    key: str = ""
    value: str = ""
    event_time: str = ""
    properties: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    #: A record with a schema in the registry, not JSON as text.
    is_avro: bool = False
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_topic(self) -> bool:
        """Whether rows become messages."""
        return bool(self.topic or self.topic_of)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline: what is read, what is made of it, where it goes."""

    name: str
    sources: tuple[Source, ...]
    sink: Sink
    description: str = ""
    cluster: Cluster = field(default_factory=Cluster)
    tables: tuple[Table, ...] = ()
    select: Mapping[str, str] = field(default_factory=dict)
    where: str = ""
    joins: tuple[Join, ...] = ()
    time: str = "__eventTime"
    watermark: Watermark | None = None
    #: Columns that tell rows apart: a second row with the same is left out.
    deduplicate: tuple[str, ...] = ()
    window: Window | None = None
    #: Column -> expression.
    keys: Mapping[str, str] = field(default_factory=dict)
    aggregates: Mapping[str, str] = field(default_factory=dict)
    emit: Emit = Emit.FINAL
    having: str = ""
    late_topic: str = ""
    guarantee: Guarantee = GUARANTEE_DEFAULT
    #: Milliseconds between batches; 0: one after the other; None: what is there now, then the end.
    every_ms: int | None = 0
    #: Empty: ``checkpoints/NAME``.
    checkpoint: str = ""
    master: str = MASTER_DEFAULT
    settings: Mapping[str, str] = field(default_factory=dict)
    #: What paths are relative to.
    base: str = field(default=".", compare=False)
    #: Key -> its line, of a definition that was a file.
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_grouped(self) -> bool:
        """Whether rows become groups."""
        return bool(self.window or self.keys or self.aggregates)

    @property
    def is_stateful(self) -> bool:
        """Whether Spark keeps state from batch to batch."""
        return self.is_grouped or bool(self.deduplicate)

    def path(self, text: str) -> str:
        """A path of the definition, from where the program runs."""
        return text if text.startswith("/") or ":/" in text or self.base in ("", ".") else f"{self.base}/{text}"

    @property
    def checkpoint_path(self) -> str:
        """Where the pipeline stands."""
        return self.path(self.checkpoint or f"checkpoints/{self.name}")


def source_name(source: Source, number: int) -> str:
    """What a source is called where its definition does not say: its topic's last part."""
    if source.name:
        return source.name
    if len(source.topics) == 1:
        return source.topics[0].rpartition("/")[2]
    return f"source-{number}"
