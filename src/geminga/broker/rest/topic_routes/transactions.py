"""``/admin/v3/transactions``: coordinators, what topics and subscriptions have of transactions, and ends.

Nothing is made by being asked for: a coordinator that nobody ever used is told as one that has nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import SuperUser, TopicOperation
from geminga.broker.core.coercion import LONG_MAX, number_of, object_of
from geminga.broker.ownership.ports import Elsewhere, Here
from geminga.broker.peers.snapshots import snapshot_json, snapshot_of, snapshots_topic
from geminga.broker.peers.standings import QUESTIONS_MAX
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.broker.rest.calls.peer_answers import Question, ask_owners
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    no_content,
    path_int,
    query_int,
    required_body,
    subscription_name,
    topic_of,
)
from geminga.broker.rest.calls.routing import Handler, Route
from geminga.broker.rest.topic_routes.internal_stats import internal_stats, ledger_document
from geminga.broker.rest.topic_routes.troubles import without_errors
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import ManagedLedger
from geminga.model.errors import (
    NotAllowedError,
    NotFoundError,
    StorageError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
    TransactionCoordinatorNotFoundError,
    UnavailableError,
)
from geminga.model.limits import TRANSACTION_COORDINATORS_MAX
from geminga.model.position import Position
from geminga.model.topic_name import TRANSACTION_SNAPSHOTS, TopicName
from geminga.model.txn_id import TxnId, TxnSubscription
from geminga.runtime import Turns
from geminga.wire.pulsar.metadata import peek_metadata

if TYPE_CHECKING:
    from geminga.broker.subscription.transaction_acks import TransactionAcks
    from geminga.broker.transactions.service import TransactionService
    from geminga.transaction.coordinator import TransactionCoordinator
    from geminga.transaction.core.buffer import TransactionBufferState
    from geminga.transaction.core.coordinator import Transaction

_BASE: Final = "/admin/v3/transactions"
#: Pulsar's words.
OFF: Final = "This Broker is not configured with transactionCoordinatorEnabled=true."
NO_SNAPSHOT: Final = "Transaction buffer Snapshot for the topic does not exist"
NOT_MORE: Final = "Number of transaction coordinators should be more than the current number of transaction coordinator"
#: Seconds that the answer to an abort waits for those who must hear of it.
ABORT_WAIT_S: Final = 10.0
#: What a coordinator that nobody ever used has.
UNUSED: Final[Document] = {
    "state": "None",
    "leastSigBits": -1,
    "lowWaterMark": -1,
    "ongoingTxnSize": 0,
    "recoverStartTime": 0,
    "recoverEndTime": 0,
}


def _transactions(request: Request) -> TransactionService:
    use = context_of(request).transactions
    if use is None:
        raise RestError(503, OFF)
    return use()


def where_enabled(routes: Iterable[Route]) -> list[Route]:
    """The same routes, answered 503 by a broker without transactions, whatever they name."""

    def guarded(route: Route) -> Route:
        handler = route.endpoint

        @wraps(handler)
        async def serve(request: Request) -> Response:
            if context_of(request).transactions is None:
                raise RestError(503, OFF)
            answer: Response = await handler(request)
            return answer

        return route.answered_by(serve)

    return [guarded(route) for route in routes]


# ---- coordinators


def coordinator_topic(request: Request) -> TopicName:
    """The partition whose owner has the coordinator that a request is about; of none, the first's."""
    number = _coordinator_number(request)
    return COORDINATORS_TOPIC.with_partition(max(0, number or 0))


def _coordinator_number(request: Request) -> int | None:
    for name in ("coordinator", "most"):
        if name in request.path_params:
            return path_int(request, name)
    return query_int(request, "coordinatorId")


async def list_coordinators(request: Request) -> Response:
    """Which broker has which coordinator."""
    context, found = context_of(request), list[Json]()
    steps = context.topics.steps()
    for number in range(await _transactions(request).coordinators.count()):
        await steps.next()
        owner = await context.ownership.owner_of(COORDINATORS_TOPIC.with_partition(number))
        endpoints = owner.endpoints if isinstance(owner, Elsewhere) else context.status.endpoints
        if not isinstance(owner, Here | Elsewhere):
            raise UnavailableError(f"nobody serves transaction coordinator {number} now: {owner.why}")
        found.append({"id": number, "brokerServiceUrl": endpoints.default.broker_url})
    return json_response(found)


async def coordinator_stats(request: Request) -> Response:
    """Of one coordinator, or of all by number."""
    coordinators = _transactions(request).coordinators
    number = _coordinator_number(request)
    if number is not None:
        await _check_number(request, number)
        return json_response(_stats_of(await coordinators.find_used(number)))
    told = await _of_all(request, "coordinatorStats")
    stats: Document = {}
    steps = context_of(request).topics.steps()
    for each in range(await coordinators.count()):
        await steps.next()
        stats[str(each)] = told[each] if each in told else _stats_of(await coordinators.find_used(each))
    return json_response(stats)


def _stats_of(coordinator: TransactionCoordinator | None) -> Document:
    if coordinator is None:
        return {**UNUSED}
    stats = coordinator.stats
    return {
        "state": "Ready",
        "leastSigBits": stats.last_number,
        "lowWaterMark": stats.low_watermark,
        "ongoingTxnSize": stats.active,
        "recoverStartTime": coordinator.recovering_ms,
        "recoverEndTime": coordinator.recovered_ms,
    }


async def _of_all(request: Request, path: str) -> dict[int, Json]:
    """What other brokers answer at a path for each of the coordinators that are theirs. Raises UnavailableError."""
    context = context_of(request)
    away = []
    for number in range(await _transactions(request).coordinators.count()):
        partition = COORDINATORS_TOPIC.with_partition(number)
        if not isinstance(await context.ownership.owner_of(partition), Here):
            away.append(Question(partition, f"{_BASE}/{path}", f"coordinatorId={number}"))
    answers = await ask_owners(context.topics.elsewhere, away)
    return {question.name.partition: answer for question, answer in zip(away, answers, strict=True)}


async def _check_number(request: Request, number: int) -> None:
    """Raise NotFoundError for a coordinator that the cluster has not."""
    if not 0 <= number < await _transactions(request).coordinators.count():
        raise _no_coordinator(number)


def _no_coordinator(number: int) -> NotFoundError:
    return NotFoundError(f"Transaction coordinator not found! coordinator id : {number}")


async def coordinator_internal_stats(request: Request) -> Response:
    """The log of a coordinator; 404 if nobody ever used it."""
    from geminga.broker.transactions.coordinators import log_name

    number = path_int(request, "coordinator")
    await _check_number(request, number)
    await _transactions(request).coordinators.find_used(number)
    ledger = context_of(request).ledgers.get(log_name(number))
    if ledger is None:
        raise _no_coordinator(number)
    return json_response({"transactionLogStats": _log_stats(ledger)})


def _log_stats(ledger: ManagedLedger) -> Document:
    return {"managedLedgerName": ledger.name, "managedLedgerInternalStats": ledger_document(ledger)}


async def scale_coordinators(request: Request) -> Response:
    """More coordinators; they are given work by clients that connect from then on."""
    body = await required_body(request)
    count = number_of(body, "the number of coordinators")
    if count <= await _transactions(request).coordinators.count():
        raise RestError(406, NOT_MORE)
    if count > TRANSACTION_COORDINATORS_MAX:
        raise RestError(412, f"there may be {TRANSACTION_COORDINATORS_MAX} transaction coordinators, not {count}")
    await context_of(request).resources.partitioned_topics.update(COORDINATORS_TOPIC, count)
    return no_content()


# ---- transactions


def _txn_id(request: Request) -> TxnId:
    return TxnId(path_int(request, "most", LONG_MAX), path_int(request, "least", LONG_MAX))


async def _coordinator_of(request: Request, txn_id: TxnId) -> TransactionCoordinator:
    """Raises NotFoundError."""
    try:
        found = await _transactions(request).coordinators.find_used(txn_id.coordinator)
    except TransactionCoordinatorNotFoundError as error:
        raise NotFoundError(f"Transaction coordinator with id {txn_id.coordinator} not found!") from error
    if found is None:
        raise NotFoundError(f"Transaction coordinator with id {txn_id.coordinator} not found!")
    return found


async def transaction_metadata(request: Request) -> Response:
    """A transaction that is not over."""
    path_int(request, "most")
    txn_id = _txn_id(request)
    coordinator = await _coordinator_of(request, txn_id)
    return json_response(await _metadata_of(request, coordinator.state.find(txn_id)))


async def standings(request: Request) -> Response:
    """How transactions of a coordinator stand to topics and subscriptions."""
    body = await json_body(request)
    if not isinstance(body, list) or len(body) > QUESTIONS_MAX:
        raise RestError(412, f"expected a list of at most {QUESTIONS_MAX} questions")
    found = await _transactions(request).coordinators.own_standings(
        path_int(request, "coordinator"), [_question(each) for each in body]
    )
    return json_response({"standings": [each.value for each in found]})


def _question(given: Json) -> tuple[int, str | TxnSubscription]:
    question = object_of(given, "a question")
    number, topic, subscription = question.get("number"), question.get("topic"), question.get("subscription")
    if type(number) is not int or not 0 <= number < 1 << 64 or not isinstance(topic, str):
        raise RestError(412, "a question has the number of a transaction and a topic")
    return number, TxnSubscription(topic, subscription) if isinstance(subscription, str) else topic


async def slow_transactions(request: Request) -> Response:
    """Transactions by id that are open for longer than so many milliseconds, of one coordinator or of all."""
    longer_ms = path_int(request, "timeout", LONG_MAX)
    coordinators, number = _transactions(request).coordinators, _coordinator_number(request)
    if number is not None:
        await _check_number(request, number)
    steps = context_of(request).topics.steps()
    found: Document = {}
    told = await _of_all(request, f"slowTransactions/{longer_ms}") if number is None else {}
    for answer in told.values():
        found |= cast("Document", answer)
    for each in range(await coordinators.count()) if number is None else (number,):
        if each in told:
            continue
        coordinator = await coordinators.find_used(each)
        for transaction in coordinator.slow(longer_ms) if coordinator is not None else ():
            await steps.next()
            found[str(transaction.txn_id)] = await _metadata_of(request, transaction)
    return json_response(found)


async def _metadata_of(request: Request, transaction: Transaction) -> Document:
    txn_id = transaction.txn_id
    of = f"{txn_id.coordinator}/{txn_id.number}"
    partitions, subscriptions = list(transaction.partitions), list(transaction.subscriptions)
    # Asked of their owners, those that are not here.
    peers = context_of(request).topics.elsewhere
    about: dict[str | TxnSubscription, Question] = {}
    all_told: list[str | TxnSubscription] = [*partitions, *subscriptions]
    for told in all_told:
        name = TopicName.parse(told if isinstance(told, str) else told.topic)
        if peers is not None and not await peers.is_here(name):
            about[told] = Question(name, f"{_BASE}/{_path_of(name, told)}/{of}")
    answers = dict(zip(about, await ask_owners(peers, list(about.values())), strict=True))
    produced: Document = {}
    for topic in partitions:
        # Of a topic that is gone, what one says that never saw the transaction.
        away = answers[topic] or {"aborted": False} if topic in about else None
        produced[topic] = await _produced(request, topic, txn_id) if away is None else away
    acked: dict[str, Json] = {}
    for held in subscriptions:
        of_topic = cast("Document", acked.setdefault(held.topic, {}))
        away = answers[held] or {} if held in about else None
        of_topic[held.subscription] = await _acknowledged(request, held, txn_id) if away is None else away
    document: Document = {
        "txnId": str(txn_id),
        "status": transaction.status.name,
        "openTimestamp": transaction.start_ms,
        "timeoutAt": transaction.timeout_ms,
        "producedPartitions": produced,
        "ackedPartitions": acked,
    }
    if transaction.owner is not None:
        document["owner"] = transaction.owner
    return document


def _path_of(name: TopicName, told: str | TxnSubscription) -> str:
    """Where the owner of a topic tells of one transaction in it, or in a subscription of it."""
    place = f"{name.namespace}/{quote(name.local_name, safe='')}"
    if isinstance(told, str):
        return f"transactionInBufferStats/{place}"
    return f"transactionInPendingAckStats/{place}/{quote(told.subscription, safe='')}"


def _in_buffer(state: TransactionBufferState | None, txn_id: TxnId) -> Document:
    """What a topic has of a transaction, as Pulsar names it; of one that it never saw too."""
    first = state.open.get(txn_id) if state is not None else None
    is_aborted = state is not None and txn_id in state.aborted
    return {**({"startPosition": str(first)} if first is not None else {}), "aborted": is_aborted}


async def _produced(request: Request, topic: str, txn_id: TxnId) -> Document:
    try:
        buffer = await (await _loaded(request, TopicName.parse(topic))).use_transactions()
    except (NotFoundError, TopicNotFoundError):
        return {"aborted": False}
    return _in_buffer(buffer.state, txn_id)


async def _acknowledged(request: Request, held: TxnSubscription, txn_id: TxnId) -> Document:
    try:
        found = _subscription(await _loaded(request, TopicName.parse(held.topic)), held.subscription)
    except (NotFoundError, TopicNotFoundError, SubscriptionNotFoundError):
        return {}
    return cast("Document", found.stats_of(txn_id))


async def abort_transaction(request: Request) -> Response:
    """Abort one whoever began it; again is the same as once. 503 if some must hear of it yet."""
    txn_id = _txn_id(request)
    coordinator = await _coordinator_of(request, txn_id)
    if not await coordinator.abort_within(txn_id, ABORT_WAIT_S):
        raise UnavailableError(
            f"transaction {txn_id} is being aborted; some topics or subscriptions have not heard of it yet"
        )
    return no_content()


# ---- topics


async def _loaded(request: Request, name: TopicName) -> PersistentTopic:
    """Raises TopicNotFoundError in Pulsar's words here."""
    try:
        topic = await context_of(request).topics.registry.get(name, create=False, is_for_client=False)
    except (TopicNotFoundError, NotFoundError) as error:
        raise TopicNotFoundError(f"Topic not found {name}") from error
    if not isinstance(topic, PersistentTopic):
        raise TopicNotFoundError(f"Topic not found {name}")
    return topic


def persistent_of(request: Request) -> TopicName:
    """The topic of a path without a domain."""
    return topic_of(request, "persistent")


async def _topic(request: Request) -> PersistentTopic:
    return await _loaded(request, persistent_of(request))


def snapshots_topic_of(request: Request) -> TopicName:
    """The topic whose owner keeps the snapshot of the path's topic."""
    return snapshots_topic(persistent_of(request))


async def find_snapshot(request: Request) -> Response:
    """The snapshot of a topic's transaction buffer; 204: there is none."""
    found = await _transactions(request).own_snapshots.find(str(persistent_of(request)))
    return no_content() if found is None else json_response(snapshot_json(found))


async def put_snapshot(request: Request) -> Response:
    """Keep the snapshot in the body instead of the last one."""
    snapshot = snapshot_of(await json_body(request, None, is_of_broker=True))
    await _transactions(request).own_snapshots.put(str(persistent_of(request)), snapshot)
    return no_content()


async def remove_snapshot(request: Request) -> Response:
    """The topic is deleted."""
    await _transactions(request).own_snapshots.remove(str(persistent_of(request)))
    return no_content()


async def buffer_stats(request: Request) -> Response:
    """What a topic has of transactions."""
    buffer = await (await _topic(request)).use_transactions()
    stats = cast("Document", {**buffer.stats(), "snapshotType": "Single"})
    if not flag(request, "lowWaterMarks"):
        del stats["lowWaterMarks"]
    return json_response(stats)


async def buffer_internal_stats(request: Request) -> Response:
    """The topic in which the namespace's snapshots are."""
    topic = await _topic(request)
    buffer = topic.transaction_buffer
    if buffer is None or buffer.is_idle:
        raise NotFoundError(NO_SNAPSHOT)
    snapshots = await _loaded(request, TopicName.parse(f"persistent://{topic.name.namespace}/{TRANSACTION_SNAPSHOTS}"))
    context = context_of(request)
    stats = without_errors(await internal_stats(context.schemas, snapshots, Turns(context.clock)))
    return json_response(
        {
            "snapshotType": "Single",
            "singleSnapshotSystemTopicInternalStats": {
                "managedLedgerName": snapshots.ledger.name,
                "managedLedgerInternalStats": stats,
            },
        }
    )


async def in_buffer_stats(request: Request) -> Response:
    """What a topic has of one transaction."""
    buffer = await (await _topic(request)).use_transactions()
    return json_response(_in_buffer(buffer.state, _txn_id(request)))


# ---- subscriptions


def _subscription(topic: PersistentTopic, name: str) -> TransactionAcks:
    """Raises SubscriptionNotFoundError, NotAllowedError."""
    found = topic.subscriptions.get(name)
    if not isinstance(found, Subscription):
        raise SubscriptionNotFoundError(f"{topic.name} not found subscription : {name}")
    if found.transactions.acks is None:
        raise NotAllowedError(f"subscription {name} of {topic.name} acknowledges in no transactions")
    return found.transactions.acks


async def pending_ack_stats(request: Request) -> Response:
    """What a subscription holds for transactions."""
    stats = cast("Document", _subscription(await _topic(request), subscription_name(request)).stats())
    if not flag(request, "lowWaterMarks"):
        del stats["lowWaterMarks"]
    return json_response(stats)


async def pending_ack_internal_stats(request: Request) -> Response:
    """The log of what a subscription holds for transactions."""
    from geminga.broker.transactions.pending_ack_logs import log_name

    topic, name = await _topic(request), subscription_name(request)
    _subscription(topic, name)
    ledger = context_of(request).ledgers.get(log_name(topic.name, name))
    if ledger is None:
        raise UnavailableError("Pending ack have not init success!")
    return json_response({"pendingAckLogStats": _log_stats(ledger)})


async def in_pending_ack_stats(request: Request) -> Response:
    """What a subscription holds for one transaction."""
    acks = _subscription(await _topic(request), subscription_name(request))
    return json_response(cast("Document", acks.stats_of(_txn_id(request))))


async def position_stats(request: Request) -> Response:
    """How an entry, or with ``batchIndex`` a message of it, stands in a subscription."""
    topic = await _topic(request)
    acks = _subscription(topic, subscription_name(request))
    position = Position(path_int(request, "ledger", LONG_MAX), path_int(request, "entry", LONG_MAX))
    index = query_int(request, "batchIndex")
    if index is not None and index < 0:
        raise RestError(412, "batchIndex can not be negative")
    size = 0 if index is None else await _batch_size(topic.ledger, position)
    return json_response({"state": acks.position_state(position, index, size)})


async def _batch_size(ledger: ManagedLedger, position: Position) -> int:
    """Messages of an entry that is a batch; 0: it is none, or not there."""
    try:
        entries = await ledger.reader.read([position], is_limited=False)
    except StorageError:
        return 0
    metadata = peek_metadata(entries[0].data) if entries else None
    if metadata is None or not metadata.HasField("num_messages_in_batch"):
        return 0
    return metadata.num_messages_in_batch


_PLACE: Final = "{tenant}/{namespace}/{topic}"
_SUBSCRIPTION: Final = f"{_PLACE}/{{path_subscription}}"
_TXN: Final = "{most}/{least}"


def _get(path: str, handler: Handler, needs: SuperUser | TopicOperation) -> Route:
    return Route("GET", f"{_BASE}/{path}", handler, needs)


#: About the cluster's coordinators.
OF_CLUSTER: Final = [
    _get("coordinators", list_coordinators, SuperUser.LOOK_AT_TRANSACTIONS),
    Route("POST", f"{_BASE}/transactionCoordinator/replicas", scale_coordinators, SuperUser.SCALE_COORDINATORS),
]
#: About one coordinator, answered by its owner.
OF_COORDINATORS: Final = [
    _get("coordinatorStats", coordinator_stats, SuperUser.LOOK_AT_TRANSACTIONS),
    _get("coordinatorInternalStats/{coordinator}", coordinator_internal_stats, SuperUser.LOOK_AT_TRANSACTIONS),
    _get("slowTransactions/{timeout}", slow_transactions, SuperUser.LOOK_AT_TRANSACTIONS),
    _get(f"transactionMetadata/{_TXN}", transaction_metadata, SuperUser.LOOK_AT_TRANSACTIONS),
    Route("POST", f"{_BASE}/abortTransaction/{_TXN}", abort_transaction, SuperUser.ABORT_TRANSACTION),
]
#: About a topic, answered by its owner.
OF_TOPICS: Final = [
    _get(f"transactionBufferStats/{_PLACE}", buffer_stats, TopicOperation.GET_STATS),
    _get(f"transactionInBufferStats/{_PLACE}/{_TXN}", in_buffer_stats, TopicOperation.GET_STATS),
    _get(f"pendingAckStats/{_SUBSCRIPTION}", pending_ack_stats, TopicOperation.GET_STATS),
    _get(f"pendingAckInternalStats/{_SUBSCRIPTION}", pending_ack_internal_stats, TopicOperation.GET_STATS),
    _get(f"transactionInPendingAckStats/{_SUBSCRIPTION}/{_TXN}", in_pending_ack_stats, TopicOperation.GET_STATS),
    _get(f"positionStatsInPendingAck/{_SUBSCRIPTION}/{{ledger}}/{{entry}}", position_stats, TopicOperation.GET_STATS),
]
#: Geminga's own, between brokers: answered by who has the coordinator.
OF_STANDINGS: Final = [Route("POST", f"{_BASE}/standings/{{coordinator}}", standings, SuperUser.END_TRANSACTION)]
#: Geminga's own, between brokers: answered by who keeps the snapshots of a namespace.
OF_SNAPSHOTS: Final = [
    Route(method, f"{_BASE}/bufferSnapshot/{_PLACE}", each, SuperUser.END_TRANSACTION)
    for each, method in ((find_snapshot, "GET"), (put_snapshot, "PUT"), (remove_snapshot, "DELETE"))
]
#: The same, and answered in Pulsar by a broker without transactions too.
ALWAYS: Final = [_get(f"transactionBufferInternalStats/{_PLACE}", buffer_internal_stats, TopicOperation.GET_STATS)]
