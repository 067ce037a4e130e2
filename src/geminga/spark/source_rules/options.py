"""The options of the source; docs/spark-source.md is their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.foreign_options import foreign_source_option
from geminga.spark.rules.metadata_columns import DEFAULT_COLUMNS, check_columns
from geminga.spark.rules.option_values import OF_TABLES, OptionError, OptionValues, unknown_option
from geminga.spark.rules.own_topics import is_own
from geminga.spark.source_rules.admission import Limits
from geminga.spark.source_rules.ddl import parse_columns
from geminga.spark.source_rules.lake_plan import Piece
from geminga.spark.source_rules.offsets import (
    EARLIEST,
    LATEST,
    OffsetError,
    ReadPosition,
    StreamOffset,
    parse_positions,
)
from geminga.spark.source_rules.plan_text import Plan, decode_plan

TASKS_MAX_DEFAULT: Final = 4
MAX_TRIGGER_DELAY_MS_DEFAULT: Final = 15 * 60_000
DISCOVERY_INTERVAL_MS_DEFAULT: Final = 60_000
POLL_TIMEOUT_MS_DEFAULT: Final = 30_000
LONG_POLL_MS_DEFAULT: Final = 250
ARROW_BATCH_BYTES_DEFAULT: Final = 4 << 20
WINDOW_BYTES_DEFAULT: Final = 16 << 20
#: What ``read_topic`` decided, as :mod:`.plan_text` says it.
PLAN: Final = "lake.plan"
#: Those without a prefix, and those of others that mean nothing here.
_NAMES: Final = (
    "service.url",
    "admin.url",
    "topic",
    "topics",
    "topicsPattern",
    "topicDiscoveryIntervalMs",
    "startingOffsets",
    "startingTime",
    "endingOffsets",
    "endingTime",
    "timeZone",
    "subscription",
    "predefinedSubscription",
    "failOnDataLoss",
    "maxBytesPerTrigger",
    "maxMessagesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "numPartitions",
    "minPartitions",
    "targetBytesPerTask",
    "longPollMs",
    "pollTimeoutMs",
    "schemaMode",
    "jsonBytes",
    "jsonColumns",
    "emptyAsTombstone",
    "invalid",
    "badRecordsTopic",
    "metadataColumns",
    "arrowBatchBytes",
    "filterPushdown",
    "lake.root",
    "lake.region",
    "lake.endpoint",
    PLAN,
)
_PREFIXES: Final = ("pulsar.client.", "pulsar.reader.", "pulsar.admin.", "pulsar.producer.")
_BOUNDS: Final = frozenset(
    [
        *("startingoffsets", "startingtime", "endingoffsets", "endingtime"),
        *("lake.root", "lake.region", "lake.endpoint", PLAN),
    ]
)
#: Options of a reader, in lower case behind ``pulsar.reader.``.
_READER_OPTIONS: Final = frozenset(
    [
        "receiverqueuesize",
        "windowbytes",
        "readername",
        "subscriptionroleprefix",
        "readcompacted",
        "cryptoprivatekeypath",
        "cryptofailureaction",
    ]
)


@dataclass(frozen=True, slots=True)
class ReaderConfiguration:
    """How entries are read: ``pulsar.reader.*``. Sizes in bytes, times in milliseconds."""

    #: 0: as the window in bytes says.
    queue_messages: int = 0
    window_bytes: int = WINDOW_BYTES_DEFAULT
    name: str = "spark-reader"
    is_read_compacted: bool = False
    #: PEM file of the private key that decrypts; empty: none.
    private_key_path: str = ""
    poll_timeout_ms: int = POLL_TIMEOUT_MS_DEFAULT
    arrow_batch_bytes: int = ARROW_BATCH_BYTES_DEFAULT
    fail_on_data_loss: bool = True
    #: Topics are read from their beginning, or a time, for the first time: what is gone by then was never theirs.
    is_first_read: bool = False
    #: Publish times of the rows, in milliseconds: from the first up to and without the second.
    time_from_ms: int | None = None
    time_to_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Which topics are read: names, or a pattern over a namespace."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    discovery_interval_ms: int = DISCOVERY_INTERVAL_MS_DEFAULT

    def includes(self, topic: str) -> bool:
        """Whether a topic or partition, by its full name, is one of the choice, be it there or not."""
        if self.pattern:
            from geminga.client.consumer_rules.topic_pattern import (
                TopicPattern,  # loads the client, which most plans do without
            )

            return TopicPattern.parse(self.pattern, must_be_linear=True).matches(topic) and not is_own(topic)
        named = {str(TopicName.parse(name)) for name in self.names}
        return topic in named or str(TopicName.parse(topic).partitioned_topic) in named


@dataclass(frozen=True, slots=True)
class LakeChoice:
    """Where the files of offloaded ledgers are: ``lake.*``."""

    #: ``file:///path`` or ``s3://bucket/prefix``.
    root: str
    region: str = ""
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What filters leave of a batch read; None: everything."""

    topics: frozenset[str] | None = None
    message: ReadPosition | None = None
    time_from_ms: int | None = None
    time_to_ms: int | None = None

    def of_topics(self, topics: Iterable[str]) -> Narrowed:
        """Only these topics."""
        wanted = frozenset(topics)
        return replace(self, topics=wanted if self.topics is None else self.topics & wanted)

    def at_message(self, message: ReadPosition) -> Narrowed:
        """Only the message at a position."""
        return replace(self, message=message)

    def clip(self, piece: Piece) -> Piece | None:
        """What is left of a piece that was planned before; its times are looked at when it is read."""
        if self.topics is not None and piece.topic not in self.topics:
            return None
        if self.message is None:
            return piece
        behind = self.message._replace(batch_index=self.message.batch_index + 1)
        start, end = max(piece.start, self.message), min(piece.end, behind)
        return replace(piece, start=start, end=end) if start < end else None

    def in_time(self, from_ms: int | None, to_ms: int | None) -> Narrowed:
        """Only what was published from the first and before the second time."""
        return replace(
            self, time_from_ms=_later(self.time_from_ms, from_ms), time_to_ms=_earlier(self.time_to_ms, to_ms)
        )


def _later(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((time for time in (one, other) if time is not None), default=None)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All of them, checked. Times in milliseconds, sizes in bytes; 0: no limit."""

    client: ClientConfiguration
    topics: TopicChoice
    reader: ReaderConfiguration
    #: ``latest``, ``earliest``, a time, or the positions the user gave.
    start: StreamOffset
    #: None: whatever is there.
    end: Mapping[str, ReadPosition] | None = None
    subscription: str = ""
    max_bytes_per_trigger: int = 0
    max_messages_per_trigger: int = 0
    min_messages_per_trigger: int = 0
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS_DEFAULT
    tasks_max: int = TASKS_MAX_DEFAULT
    target_bytes_per_task: int = 0
    long_poll_ms: int = LONG_POLL_MS_DEFAULT
    schema_mode: str = "raw"
    #: With raw payloads: the DDL of what they have to be JSON objects of; empty: anything.
    json_columns: str = ""
    #: Of those, whether no bytes are a null.
    takes_empty: bool = False
    #: Bytes of JSON schemas are text in UTF-8, not base64.
    are_json_bytes_text: bool = False
    #: Whether messages that do not fit their columns are rows of nulls, instead of an error.
    keeps_invalid: bool = False
    #: Where they go instead of being rows; empty: nowhere.
    bad_records_topic: str = ""
    metadata_columns: tuple[str, ...] = DEFAULT_COLUMNS
    filter_pushdown: bool = False
    #: None: all is read from the broker.
    lake: LakeChoice | None = None
    #: None: planned when it is read.
    plan: Plan | None = None
    #: By filters that Spark pushed down, no option.
    narrowed: Narrowed = Narrowed()

    @property
    def bounded_reader(self) -> ReaderConfiguration:
        """The reader's configuration with the time bounds of filters, too."""
        reader, narrowed = self.reader, self.narrowed
        return replace(
            reader,
            time_from_ms=_later(reader.time_from_ms, narrowed.time_from_ms),
            time_to_ms=_earlier(reader.time_to_ms, narrowed.time_to_ms),
        )

    @classmethod
    def for_schema(cls, options: Mapping[str, str]) -> SourceOptions:
        """Without start and end: Spark asks for the schema before it says whether it reads a stream."""
        kept = {name: value for name, value in options.items() if name.lower() not in _BOUNDS}
        return cls.parse(kept, is_stream=True)

    @staticmethod
    def check_names(options: Mapping[str, str]) -> None:
        """Raise OptionError for an option that does not exist: a mistyped limit is no limit."""
        known = {name.lower(): name for name in _NAMES}
        for name in options:
            lowered = name.lower()
            if lowered in known or lowered.startswith(_PREFIXES):
                continue
            if lowered == "provider":
                raise OptionError(OF_TABLES)
            if lowered == "path":
                raise OptionError(
                    "load() takes no path here: the options topic, topics or topicsPattern say what is read"
                )
            foreign = foreign_source_option(name)
            if foreign:
                raise OptionError(f"{name}: an option of another connector; {foreign}")
            raise unknown_option(name, known, "source")

    @property
    def limits(self) -> Limits:
        """Of one batch, as the options say."""
        return Limits(
            self.max_bytes_per_trigger,
            self.max_messages_per_trigger,
            self.min_messages_per_trigger,
            self.target_bytes_per_task,
        )

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
        """Raises OptionError with the option, its value and what was expected."""
        values = OptionValues(options)
        columns = values.names("metadataColumns") if values.is_given("metadataColumns") else DEFAULT_COLUMNS
        minimum, maximum = values.number("minPartitions", 0), values.number("numPartitions", 0)
        if minimum and maximum and minimum > maximum:
            raise OptionError(f"minPartitions={minimum}: more than numPartitions={maximum}")
        cls.check_names(options)
        mode = values.choice("schemaMode", ("raw", "topic", "fixed"), "raw")
        least, most = values.number("minMessagesPerTrigger", 0), values.number("maxMessagesPerTrigger", 0)
        if least and most and least > most:
            raise OptionError(f"minMessagesPerTrigger={least}: more than maxMessagesPerTrigger={most}")
        client, topics = ClientConfiguration.parse(options), _topics(values)
        reader, start = _reader(values, is_stream=is_stream), _start(values, is_stream=is_stream)
        end = _end(values, is_stream=is_stream)
        _check_order(reader, start, end)
        return cls(
            client=client,
            topics=topics,
            reader=reader,
            start=start,
            end=end,
            subscription=values.text("subscription", "predefinedSubscription").strip(),
            max_bytes_per_trigger=values.size("maxBytesPerTrigger", 0),
            max_messages_per_trigger=most,
            min_messages_per_trigger=least,
            max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS_DEFAULT),
            tasks_max=maximum or max(TASKS_MAX_DEFAULT, minimum),
            target_bytes_per_task=values.size("targetBytesPerTask", 0),
            long_poll_ms=values.duration_ms("longPollMs", LONG_POLL_MS_DEFAULT),
            schema_mode=mode,
            json_columns=_json_columns(values, mode),
            takes_empty=values.boolean("emptyAsTombstone", default=False),
            are_json_bytes_text=_are_json_bytes_text(values, mode),
            keeps_invalid=_keeps_invalid(values, mode),
            bad_records_topic=_bad_records_topic(values, mode, topics),
            metadata_columns=check_columns(columns),
            filter_pushdown=values.boolean("filterPushdown", default=False),
            lake=_lake(values, is_stream=is_stream),
            plan=_plan(values, is_stream=is_stream),
        )


def _are_json_bytes_text(values: OptionValues, mode: str) -> bool:
    if values.is_given("jsonBytes") and mode == "raw":
        raise OptionError("jsonBytes: of what JSON schemas say are bytes: only with schemaMode=topic or fixed")
    return values.choice("jsonBytes", ("base64", "text"), "base64") == "text"


def _lake(values: OptionValues, *, is_stream: bool) -> LakeChoice | None:
    root = values.text("lake.root").strip().rstrip("/")
    region, endpoint = values.text("lake.region").strip(), values.text("lake.endpoint").strip()
    if not root:
        if region or endpoint:
            raise OptionError("lake.region, lake.endpoint: only with lake.root")
        return None
    if is_stream:
        raise OptionError("lake.root: only for batch reads; a stream reads the lake's ledgers through the broker")
    if values.boolean("pulsar.reader.readCompacted", default=False):
        raise OptionError("lake.root and pulsar.reader.readCompacted: the lake has all messages; expected one of them")
    if root.startswith("/"):
        root = f"file://{root}"
    scheme, _, rest = root.partition("://")
    if (scheme != "s3" or not rest.strip("/") or rest.startswith("/")) and (scheme != "file" or rest[:1] != "/"):
        raise OptionError(f"lake.root={root!r}: expected file:///path, an absolute path or s3://bucket/prefix")
    return LakeChoice(root, region, endpoint)


def _plan(values: OptionValues, *, is_stream: bool) -> Plan | None:
    if not values.is_given(PLAN):
        return None
    if is_stream:
        raise OptionError(f"{PLAN}: only for batch reads; read_topic writes it")
    return decode_plan(PLAN, values.text(PLAN))


def _json_columns(values: OptionValues, mode: str) -> str:
    text = values.text("jsonColumns").strip()
    if text:
        if mode != "raw":
            raise OptionError(f"jsonColumns and schemaMode={mode}: the schema has the columns; expected one of them")
        try:
            parse_columns(text)
        except ValueError as error:
            raise OptionError(f"jsonColumns: {error}") from None
    elif values.boolean("emptyAsTombstone", default=False):
        raise OptionError("emptyAsTombstone: only with jsonColumns; with a schema, no bytes are what it says")
    return text


def _check_columns_known(name: str, values: OptionValues, mode: str) -> None:
    if mode == "raw" and not values.text("jsonColumns").strip():
        raise OptionError(
            f"{name}: any payload fits schemaMode=raw; expected schemaMode=topic or fixed, or jsonColumns"
        )


def _keeps_invalid(values: OptionValues, mode: str) -> bool:
    keeps = values.choice("invalid", ("fail", "keep"), "fail") == "keep"
    if keeps:
        _check_columns_known("invalid=keep", values, mode)
    return keeps


def _bad_records_topic(values: OptionValues, mode: str, topics: TopicChoice) -> str:
    text = values.text("badRecordsTopic").strip()
    if not text:
        return ""
    _check_columns_known("badRecordsTopic", values, mode)
    if values.text("invalid").strip():
        raise OptionError("invalid and badRecordsTopic: expected one of them; what goes to a topic is no row")
    try:
        name = TopicName.parse(text)
    except InvalidTopicNameError as error:
        raise OptionError(f"badRecordsTopic: {error}") from None
    if _reads(topics, name.partitioned_topic):
        raise OptionError(
            f"badRecordsTopic: {name} is read by this query: what does not fit would be read and sent again, for ever"
        )
    return str(name)


def _reads(topics: TopicChoice, topic: TopicName) -> bool:
    """Whether any of a topic is read, be it one of its partitions."""
    try:
        named = (TopicName.parse(name).partitioned_topic for name in topics.names)
        return topics.includes(str(topic)) if topics.pattern else topic in named
    except InvalidTopicNameError:
        return False  # which is said when the topics are looked for


def _topics(values: OptionValues) -> TopicChoice:
    given = [name for name in ("topic", "topics", "topicsPattern") if values.text(name).strip()]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"topic, topics, topicsPattern: expected exactly one of them, {found}")
    if given == ["topicsPattern"]:
        interval = values.duration_ms("topicDiscoveryIntervalMs", DISCOVERY_INTERVAL_MS_DEFAULT)
        from geminga.client.consumer_rules.topic_pattern import (
            TopicPattern,  # loads the client, which most plans do without
        )

        pattern = values.text("topicsPattern").strip()
        try:
            TopicPattern.parse(pattern, must_be_linear=True)
        except InvalidTopicNameError as error:
            raise OptionError(f"topicsPattern: {error}") from None
        return TopicChoice(pattern=pattern, discovery_interval_ms=interval)
    names = [values.text("topic").strip()] if given == ["topic"] else values.names("topics")
    interval = values.duration_ms("topicDiscoveryIntervalMs", DISCOVERY_INTERVAL_MS_DEFAULT)
    return TopicChoice(tuple(dict.fromkeys(names)), discovery_interval_ms=interval)


def _reader(values: OptionValues, *, is_stream: bool) -> ReaderConfiguration:
    given = values.prefixed("pulsar.reader.")
    unknown = sorted(set(given) - _READER_OPTIONS)
    if unknown:
        raise OptionError(f"pulsar.reader.{unknown[0]}: not known; see the table of options in docs/spark-source.md")
    action = given.get("cryptofailureaction", "fail").lower()
    if action != "fail":
        raise OptionError(f"pulsar.reader.cryptoFailureAction={action!r}: only FAIL: no row is left out in silence")
    prefix = given.get("subscriptionroleprefix", "")
    name = given.get("readername", "") or "spark-reader"
    return ReaderConfiguration(
        queue_messages=values.number("pulsar.reader.receiverQueueSize", 0),
        window_bytes=values.size("pulsar.reader.windowBytes", WINDOW_BYTES_DEFAULT, 1),
        name=f"{prefix}-{name}" if prefix else name,
        is_read_compacted=values.boolean("pulsar.reader.readCompacted", default=False),
        private_key_path=given.get("cryptoprivatekeypath", ""),
        poll_timeout_ms=values.duration_ms("pollTimeoutMs", POLL_TIMEOUT_MS_DEFAULT),
        arrow_batch_bytes=values.size("arrowBatchBytes", ARROW_BATCH_BYTES_DEFAULT, 1),
        fail_on_data_loss=values.boolean("failOnDataLoss", default=True),
        # A stream's batches are it or are not.
        is_first_read=not is_stream and _start(values, is_stream=False).init is not None,
        # A stream's is in its offsets: where a query goes on, the option means nothing.
        time_from_ms=None if is_stream else values.time_ms("startingTime"),
        time_to_ms=None if is_stream else values.time_ms("endingTime"),
    )


def _check_order(reader: ReaderConfiguration, start: StreamOffset, end: Mapping[str, ReadPosition] | None) -> None:
    """Raise OptionError for a range that ends before it begins: two bounds in each other's place read nothing."""
    if reader.time_from_ms is not None and reader.time_to_ms is not None and reader.time_from_ms > reader.time_to_ms:
        raise OptionError("endingTime is before startingTime: expected the later of the two as endingTime")
    for topic, at in sorted(start.topics.items()):
        until = (end or {}).get(topic)
        if until is not None and until < at:
            raise OptionError(
                f"{topic}: endingOffsets {until} is before startingOffsets {at}: expected the later of the two as "
                "endingOffsets"
            )


def _start(values: OptionValues, *, is_stream: bool) -> StreamOffset:
    time_ms = values.time_ms("startingTime")
    text = values.text("startingOffsets").strip()
    if time_ms is not None:
        if text:
            raise OptionError("startingOffsets and startingTime: expected one of them")
        return StreamOffset(init=time_ms)
    if not text:
        return StreamOffset(init=LATEST if is_stream else EARLIEST)
    if text.lower() in (EARLIEST, LATEST):
        if text.lower() == LATEST and not is_stream:
            raise OptionError("startingOffsets='latest': a batch from the latest message on is empty")
        return StreamOffset(init=text.lower())
    return StreamOffset(topics=_given_positions("startingOffsets", text))


def _end(values: OptionValues, *, is_stream: bool) -> Mapping[str, ReadPosition] | None:
    for name in ("endingOffsets", "endingTime"):
        if is_stream and values.text(name).strip():
            raise OptionError(f"{name}: only for batch reads; a stream has no end")
    text = values.text("endingOffsets").strip()
    if text and values.text("endingTime").strip():
        raise OptionError("endingOffsets and endingTime: expected one of them")
    if not text or text.lower() == LATEST:
        return None
    if text.lower() == EARLIEST:
        raise OptionError("endingOffsets='earliest': a batch up to the first message is empty")
    return _given_positions("endingOffsets", text)


def _given_positions(name: str, text: str) -> dict[str, ReadPosition]:
    try:
        return {str(TopicName.parse(topic)): at for topic, at in parse_positions(text).items()}
    except (OffsetError, InvalidTopicNameError) as error:
        raise OptionError(f"{name}: {error}") from None
