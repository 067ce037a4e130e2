"""The sink's options, checked: what is unknown, can not be, or does not go together is an error that says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import TopicName
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.rules.foreign_options import foreign_sink_option
from geminga.spark.rules.option_values import OptionError, OptionValues, unknown_option
from geminga.spark.sink_rules.commit_steps import LostBatch

CLIENT_PREFIX: Final = "pulsar.client."
PRODUCER_PREFIX: Final = "pulsar.producer."
#: Batches of a query, or versions of an application, that a sequence id can number.
BATCH_ID_MAX: Final = (1 << 31) - 1
#: What a task may hold for sorting, bytes.
TASK_BYTES_DEFAULT: Final = 1 << 30
#: How long a task waits for an older attempt to leave its producer's name, milliseconds.
ATTEMPT_TIMEOUT_DEFAULT_MS: Final = 120_000
#: How long a transaction may be open, milliseconds: it holds back readers of its topics if its task dies.
TRANSACTION_TIMEOUT_DEFAULT_MS: Final = 900_000
TRANSACTION_TIMEOUT_MIN_MS: Final = 1_000
TRANSACTION_TIMEOUT_MAX_MS: Final = 30 * 24 * 3_600_000
#: How long a message may wait for its receipt, milliseconds: long enough for a broker's restart.
SEND_TIMEOUT_DEFAULT_MS: Final = 120_000
#: A producer batch holds at most so many messages and payload bytes.
BATCH_MESSAGES_DEFAULT: Final = 1000
BATCH_BYTES_DEFAULT: Final = 128 * 1024
_IDENTITY_CHARACTERS_MAX: Final = 256
#: What travels as the name of the key where the options name none.
_KEY_NAME_DEFAULT: Final = "spark"


class Guarantee(Enum):
    """What a replayed batch does to the topic."""

    #: It is written again.
    AT_LEAST_ONCE = "at-least-once"
    #: Deduplication drops what is there already.
    EFFECTIVELY_ONCE = "effectively-once"
    #: Transactions, of which a stored decision says that they count.
    EXACTLY_ONCE = "exactly-once"


class ValueSchema(Enum):
    """How several columns become one value."""

    AVRO = "avro"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What the options say of producers."""

    #: ``NONE``, ``LZ4``, ``ZLIB``, ``ZSTD`` or ``SNAPPY``.
    compression: str = "NONE"
    #: A producer batch holds at most so many messages and payload bytes.
    batch_messages_max: int = BATCH_MESSAGES_DEFAULT
    batch_bytes_max: int = BATCH_BYTES_DEFAULT
    #: Milliseconds; 0: for ever.
    send_timeout_ms: int = SEND_TIMEOUT_DEFAULT_MS
    #: Keys become partitions by murmur3, not by Java's hash of strings.
    is_murmur3: bool = False
    #: Rows larger than a batch may be are messages of their own, in several chunks where the broker's limit says so.
    is_chunking: bool = False
    #: Names of the keys that payloads are encrypted for, and the PEM file of the public key; empty: not encrypted.
    encryption_keys: tuple[str, ...] = ()
    public_key_path: str = ""
    #: A subscription that the broker makes with the topic, or when it is not there; empty: none.
    initial_subscription: str = ""

    @property
    def alone_above(self) -> int:
        """A payload of more bytes is a message of its own; 0: none is."""
        return self.batch_bytes_max if self.is_chunking else 0


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The sink's options."""

    client: ClientConfiguration
    producer: ProducerSettings
    #: None: exactly once in a query and where a version is given, else at least once.
    guarantee: Guarantee | None = None
    #: Where every row goes, as a full name; empty: the column ``__topic`` says.
    topic: str = ""
    #: None: not said; Avro where one is needed.
    value_schema: ValueSchema | None = None
    sink_name: str = ""
    #: Empty: the streaming query's id.
    application_id: str = ""
    #: None: the streaming query's batch id.
    version: int | None = None
    #: Columns that say the order of a task's rows, instead of topic, key and payload.
    ordered_by: tuple[str, ...] = ()
    #: Where plans and decisions are recorded; empty: ``__spark_commits`` in the namespace of the task's first output
    #: topic.
    plan_topic: str = ""
    #: The batch whose stored rows are gone on behind though its plan is not recorded; None: of none.
    resume_without_plan: int | None = None
    #: ``http://host:port`` of the admin REST, to look after the plans' topic; empty: not said.
    admin_url: str = ""
    task_bytes_max: int = TASK_BYTES_DEFAULT
    attempt_timeout_ms: int = ATTEMPT_TIMEOUT_DEFAULT_MS
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_DEFAULT_MS
    #: What a person said of a batch whose decision could not come true as a whole.
    lost_batch: tuple[LostBatch, int] | None = None


#: The sink's own, beside the client's and the producers'.
_NAMES: Final = (
    "service.url",
    "guarantee",
    "topic",
    "schemaType",
    "sinkName",
    "txnAppId",
    "txnVersion",
    "orderedBy",
    "commitStateTopic",
    "resumeWithoutPlan",
    "admin.url",
    "maxTaskBytes",
    "attemptTimeoutMs",
    "txnTimeoutMs",
    "lostBatch",
)
_PRODUCER_NAMES: Final = (
    "compressionType",
    "batchingEnabled",
    "batchingMaxMessages",
    "batchingMaxBytes",
    "sendTimeoutMs",
    "hashingScheme",
    "chunkingEnabled",
    "encryptionKeys",
    "cryptoPublicKeyPath",
)
#: Spark's own, which reach every data source; and what a view that is read and written has for its reading.
_IGNORED: Final = frozenset(("checkpointlocation", "queryname", "metadatacolumns"))
#: Options of other connectors' producers that mean nothing here, and why.
_POINTLESS: Final = {
    "producername": "the sink names its producers: sinkName and txnAppId say how",
    "initialsequenceid": "the sink numbers its messages",
    "topicname": "the option topic says where rows go",
    "maxpendingmessages": "pulsar.client.memoryLimitBytes bounds what waits for receipts",
    "maxpendingmessagesacrosspartitions": "pulsar.client.memoryLimitBytes bounds what waits for receipts",
    "blockifqueuefull": "the sink always waits for room",
    "batchingmaxpublishdelaymicros": "a batch leaves when it is full, or with the last row of its task",
    "messageroutingmode": "rows go where __partition or __key says, others to all partitions in turn",
    "accessmode": "other producers may write to the topic too",
}


def full_topic(text: str, where: str) -> str:
    """The full name of a topic; raises OptionError beginning with ``where``."""
    try:
        return str(TopicName.parse(text.strip()))
    except InvalidTopicNameError as error:
        raise OptionError(f"{where}: {error}") from None


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of one sink; raises OptionError."""
    _check_names(options)
    values = OptionValues(options)
    names = values.names("orderedBy")
    if len(set(names)) < len(names):
        raise OptionError(f"orderedBy={values.text('orderedBy')!r}: a column is there twice")
    guarantee = None
    if values.text("guarantee").strip():
        guarantee = Guarantee(values.choice("guarantee", tuple(one.value for one in Guarantee), ""))
    schema = values.choice("schemaType", ("", "avro", "json"), "")
    made = SinkOptions(
        client=ClientConfiguration.parse(options),
        producer=_producer(values),
        guarantee=guarantee,
        topic=_topic(values, "topic"),
        value_schema=ValueSchema(schema) if schema else None,
        sink_name=_identity_part(values, "sinkName"),
        application_id=_identity_part(values, "txnAppId"),
        version=_batch_number(values, "txnVersion", "growing from run to run"),
        ordered_by=tuple(names),
        plan_topic=_topic(values, "commitStateTopic"),
        resume_without_plan=_batch_number(values, "resumeWithoutPlan", "the batch that the error named"),
        admin_url=_admin_url(values),
        task_bytes_max=values.size("maxTaskBytes", TASK_BYTES_DEFAULT, minimum=1),
        attempt_timeout_ms=values.duration_ms("attemptTimeoutMs", ATTEMPT_TIMEOUT_DEFAULT_MS),
        transaction_timeout_ms=_transaction_timeout_ms(values),
        lost_batch=_lost_batch(values),
    )
    _check_combination(made)
    return made


def _check_names(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in (*_NAMES, *(PRODUCER_PREFIX + name for name in _PRODUCER_NAMES))}
    for name in options:
        lowered = name.lower()
        if lowered in known or lowered in _IGNORED or lowered.startswith(CLIENT_PREFIX):
            continue
        if lowered == "path":
            raise OptionError("save() and start() take no path here: the option topic says where rows go")
        reason = _POINTLESS.get(lowered.removeprefix(PRODUCER_PREFIX)) if lowered.startswith(PRODUCER_PREFIX) else None
        if reason is not None:
            raise OptionError(f"{name}: not an option of this sink: {reason}")
        foreign = foreign_sink_option(name)
        if foreign:
            raise OptionError(f"{name}: an option of another connector; {foreign}")
        raise unknown_option(name, known, "sink")


def _producer(values: OptionValues) -> ProducerSettings:
    at = PRODUCER_PREFIX
    messages = values.number(at + "batchingMaxMessages", BATCH_MESSAGES_DEFAULT, minimum=1)
    if not values.boolean(at + "batchingEnabled", default=True):
        messages = 1
    path = values.text(at + "cryptoPublicKeyPath").strip()
    keys = tuple(dict.fromkeys(values.names(at + "encryptionKeys"))) or ((_KEY_NAME_DEFAULT,) if path else ())
    if keys and not path:
        raise OptionError(f"{at}encryptionKeys: needs {at}cryptoPublicKeyPath, the PEM file of the public key")
    scheme = values.choice(at + "hashingScheme", ("javastringhash", "murmur3_32hash"), "javastringhash")
    return ProducerSettings(
        compression=values.choice(at + "compressionType", ("none", "lz4", "zlib", "zstd", "snappy"), "none").upper(),
        batch_messages_max=messages,
        batch_bytes_max=values.size(at + "batchingMaxBytes", BATCH_BYTES_DEFAULT, minimum=1),
        send_timeout_ms=values.duration_ms(at + "sendTimeoutMs", SEND_TIMEOUT_DEFAULT_MS),
        is_murmur3=scheme == "murmur3_32hash",
        is_chunking=values.boolean(at + "chunkingEnabled", default=False),
        encryption_keys=keys,
        public_key_path=path,
    )


def _topic(values: OptionValues, name: str) -> str:
    text = values.text(name)
    if not text.strip():
        if values.is_given(name):
            raise OptionError(f"{name} is empty: expected the name of a topic")
        return ""
    return full_topic(text, name)


def _identity_part(values: OptionValues, name: str) -> str:
    text = values.text(name)
    if ":" in text or not text.isprintable() or len(text) > _IDENTITY_CHARACTERS_MAX:
        raise OptionError(
            f"{name}={text!r}: expected up to {_IDENTITY_CHARACTERS_MAX} printable characters and no colon"
        )
    return text


def _batch_number(values: OptionValues, name: str, what: str) -> int | None:
    if not values.text(name).strip():
        return None
    number = values.number(name, 0)
    if number > BATCH_ID_MAX:
        raise OptionError(f"{name}={number}: expected a number up to {BATCH_ID_MAX}, {what}")
    return number


def _transaction_timeout_ms(values: OptionValues) -> int:
    timeout_ms = values.duration_ms("txnTimeoutMs", TRANSACTION_TIMEOUT_DEFAULT_MS)
    if not TRANSACTION_TIMEOUT_MIN_MS <= timeout_ms <= TRANSACTION_TIMEOUT_MAX_MS:
        raise OptionError(
            f"txnTimeoutMs={timeout_ms}: expected at least {TRANSACTION_TIMEOUT_MIN_MS} milliseconds, and at most "
            f"{TRANSACTION_TIMEOUT_MAX_MS} (30 days)"
        )
    return timeout_ms


def _lost_batch(values: OptionValues) -> tuple[LostBatch, int] | None:
    text = values.text("lostBatch").strip()
    if not text:
        return None
    what, _, number = text.lower().partition(":")
    if what not in ("redo", "skip") or not number.isdecimal() or int(number) > BATCH_ID_MAX:
        raise OptionError(f"lostBatch={text!r}: expected redo:<batch> or skip:<batch>, as the error said that named it")
    return LostBatch[what.upper()], int(number)


def _admin_url(values: OptionValues) -> str:
    text = values.text("admin.url").strip().rstrip("/")
    if text and not text.lower().startswith(("http://", "https://")):
        raise OptionError(
            f"admin.url={text!r}: expected http://host:port or https://host:port of a broker's admin REST"
        )
    return text


def _check_combination(options: SinkOptions) -> None:
    if options.ordered_by and options.guarantee is not Guarantee.EFFECTIVELY_ONCE:
        raise OptionError("orderedBy needs guarantee=effectively-once: with others rows stay in the order they come in")
    if options.lost_batch is not None and options.guarantee not in (None, Guarantee.EXACTLY_ONCE):
        raise OptionError("lostBatch needs guarantee=exactly-once: only its batches are decided")
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        for is_given, name in (
            (bool(options.plan_topic), "commitStateTopic"),
            (options.version is not None, "txnVersion"),
            (options.resume_without_plan is not None, "resumeWithoutPlan"),
        ):
            if is_given:
                raise OptionError(
                    f"{name} needs guarantee=exactly-once or effectively-once: without, a replay is written"
                )
    elif any(name and not TopicName.parse(name).is_persistent for name in (options.topic, options.plan_topic)):
        raise OptionError(
            f"guarantee={(options.guarantee or Guarantee.EXACTLY_ONCE).value} needs persistent topics: what is not "
            "stored can not be known to be there; choose guarantee=at-least-once for others"
        )
    if options.version is not None and not options.application_id:
        raise OptionError("txnVersion needs txnAppId: a version is one of an application's")
