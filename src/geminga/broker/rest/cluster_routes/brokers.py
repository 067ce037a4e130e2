"""``/admin/v2/brokers`` and ``/metrics``: what an operator asks of the broker itself."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from geminga.broker.access.core.actions import Anyone, BrokerOperation, SuperUser
from geminga.broker.administration.services import Backups, BrokerStatus, LiveConfiguration
from geminga.broker.ownership.core.broker_data import broker_id_of
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.requests import (
    context_of,
    decoded_text,
    json_response,
    no_content,
    object_body,
    path_text,
    query_int,
)
from geminga.broker.rest.calls.routing import Route
from geminga.model.errors import NotFoundError, PreconditionFailedError, UnavailableError
from geminga.model.exposition import CONTENT_TYPE
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT


async def health(request: Request) -> Response:
    """``ok`` if the broker serves and its storage takes writes; 503 otherwise."""
    context = context_of(request)
    _require_ready(context.status)
    shortage = context.storage_shortage()
    if shortage:
        raise UnavailableError(shortage)
    # Reading metadata goes through the store's thread: it answers only if that is alive.
    await context.resources.clusters.list()
    return PlainTextResponse("ok")


async def status(request: Request) -> Response:
    """``OK`` while the file that ``statusFilePath`` names is there, for load balancers; 404 otherwise."""
    context = context_of(request)
    _require_ready(context.status)
    missing = NotFoundError("the file that statusFilePath names is not there")
    if not context.status_file:
        raise missing
    try:
        await context.disk.file_size(context.status_file)
    except OSError as error:
        raise missing from error
    return PlainTextResponse("OK")


async def ready(request: Request) -> Response:
    """``ok`` while the broker takes connections, and is a member of its cluster where it shares one."""
    context = context_of(request)
    _require_ready(context.status)
    if context.membership is not None and not context.membership.is_member:
        raise UnavailableError("the broker is no member of its cluster now: it starts, stops, or its session is over")
    return PlainTextResponse("ok")


async def list_brokers(request: Request) -> Response:
    """The active brokers as ``host:port`` of their HTTP service, whatever cluster is named."""
    return json_response([*active_brokers(context_of(request))])


def active_brokers(context: RestContext) -> list[str]:
    """Ids of the brokers that are registered; alone, this one."""
    if context.membership is None:
        return [own_broker_id(context)]
    return sorted(broker.broker_id for broker in context.membership.brokers.all)


def own_broker_id(context: RestContext) -> str:
    """What this broker is called."""
    return broker_id_of(context.status.web_url)


async def leader_broker(request: Request) -> Response:
    """The broker that leads the cluster; alone, this one. 404 while there is none."""
    context = context_of(request)
    if context.membership is None:
        web_url = context.status.web_url
        return json_response({"serviceUrl": web_url, "brokerId": broker_id_of(web_url)})
    election = context.membership.election
    leader = None if election is None else election.leader
    if leader is None:
        raise NotFoundError("Couldn't find leader broker")
    return json_response({"serviceUrl": leader.service_url, "brokerId": leader.broker_id})


async def version(request: Request) -> Response:
    """The program's version."""
    return PlainTextResponse(context_of(request).version)


async def runtime_configuration(request: Request) -> Response:
    """Every key in force and its value; secrets are hidden."""
    from geminga.model.secret import shown

    return json_response(shown(context_of(request).configuration().items()))


async def synchronization(request: Request) -> Response:
    """How it stands with the configuration that a topic keeps alike with other clusters', by the broker that leads.

    404 where no topic does; 503 while no broker leads.
    """
    context = context_of(request)
    if context.synchronization is None:
        raise NotFoundError(
            "No topic keeps the configuration alike here: configurationMetadataSyncEventTopic names none"
        )
    membership = context.membership
    if membership is None or (membership.election is not None and membership.election.is_leader):
        return json_response(await context.synchronization())
    leader = None if membership.election is None else membership.election.leader
    found = None if leader is None else membership.brokers.find(leader.broker_id)
    if found is None:
        raise UnavailableError("no broker leads the cluster now")
    from geminga.broker.ownership.owner_nodes import endpoints_in
    from geminga.broker.rest.calls.owners import redirection

    return redirection(request, endpoints_in(found.owner).default, is_authoritative=False)


async def internal_configuration(request: Request) -> Response:
    """Where metadata and ledgers are, as Pulsar's own tools ask for it."""
    url = context_of(request).metadata_url
    shared_url = context_of(request).configuration_url or url
    keys = ("zookeeperServers", "configurationStoreServers", "metadataStoreUrl", "configurationMetadataStoreUrl")
    urls = {key: shared_url if key.startswith("configuration") else url for key in keys}
    return json_response({**urls, "ledgersRootPath": LEDGERS_ROOT})


async def live_names(request: Request) -> Response:
    """The settings that can be changed at run time."""
    return json_response([*_live(request).names])


async def live_values(request: Request) -> Response:
    """What was changed at run time, for all brokers; secrets, which those of other makes may have there, are hidden."""
    from geminga.model.secret import shown

    return json_response(shown((await _live(request).values()).items()))


async def change_setting(request: Request) -> Response:
    """Another value of a setting, for all brokers; on return this one follows it."""
    # Of a value less is asked than of a name.
    await _live(request).set(path_text(request, "key"), decoded_text(request, "value"))
    return Response(status_code=200)


async def unchange_setting(request: Request) -> Response:
    """What each broker's own configuration says, from now on."""
    await _live(request).delete(path_text(request, "key"))
    return Response(status_code=200)


async def check_backlog_quotas(request: Request) -> Response:
    """Look at the backlog quotas of all topics now; what is over is dealt with as the policies say."""
    context_of(request).check_backlog_quotas()
    return no_content()


async def shut_down(request: Request) -> Response:
    """End this broker in good order, once others may have what it served.

    ``maxConcurrentUnloadPerSec``: so many bundles a second at most. A topic that does not close in time is cut off
    whatever ``forcedTerminateTopic`` says, when the session ends.
    """
    context, per_s = context_of(request), query_int(request, "maxConcurrentUnloadPerSec") or 0
    if context.shut_down is None:
        raise PreconditionFailedError("this broker can not be ended by REST")
    await context.shut_down(per_s)
    return no_content()


async def start_backup(request: Request) -> Response:
    """Begin a backup in a directory of the server's machine; what becomes of it is asked with GET.

    The body: ``directory``, absolute; ``request``, the name of a file there, ``request-`` and 32 hex digits, which
    shows that who asks may write there; ``whole``: copy also what the backup before has; ``rateLimit``: bytes a
    second that are copied, 0: no limit.
    """
    body = await object_body(request)
    directory, proof, whole = body.get("directory"), body.get("request"), body.get("whole", False)
    if not (isinstance(directory, str) and isinstance(proof, str) and isinstance(whole, bool)):
        raise PreconditionFailedError("expected directory and request, texts, and whole, true or false")
    rate_limit = body.get("rateLimit", 0)
    if not isinstance(rate_limit, int) or isinstance(rate_limit, bool) or rate_limit < 0:
        raise PreconditionFailedError(f"rateLimit {rate_limit!r}: expected bytes a second, 0 or more")
    await _backups(request).start(directory, proof, whole=whole, rate_limit=rate_limit)
    return no_content()


async def backup_state(request: Request) -> Response:
    """What became of the backup that was begun last."""
    return json_response(await _backups(request).state())


def _backups(request: Request) -> Backups:
    backups = context_of(request).backups
    if backups is None:
        raise PreconditionFailedError(
            "this server keeps nothing in files of its own: backups are of a standalone with a data directory; a whole "
            "cluster is copied by geminga backup create DIR --metadata zk:HOST:PORT"
        )
    return backups()


def _live(request: Request) -> LiveConfiguration:
    live = context_of(request).live
    if live is None:
        raise PreconditionFailedError("no setting of this broker can be changed at run time")
    return live()


async def metrics(request: Request) -> Response:
    """Prometheus text."""
    return Response(await context_of(request).metrics.page(), media_type=CONTENT_TYPE)


def _require_ready(status: BrokerStatus) -> None:
    default = status.endpoints.default
    if status.is_closing or not (default.broker_url or default.broker_url_tls):
        raise UnavailableError("the broker is stopping")


ROUTES = [
    Route("GET", "/admin/v2/brokers/internal-configuration", internal_configuration, SuperUser.LOOK_AT_BROKER),
    Route("GET", "/admin/v2/brokers/health", health, BrokerOperation.HEALTH_CHECK),
    Route("GET", "/admin/v2/brokers/ready", ready, Anyone("it tells load balancers whether to come")),
    Route("GET", "/admin/v2/brokers/leaderBroker", leader_broker, BrokerOperation.GET_LEADER_BROKER),
    Route("GET", "/admin/v2/brokers/version", version, Anyone("it tells the version alone, as in Pulsar")),
    Route("GET", "/admin/v2/brokers/configuration", live_names, BrokerOperation.LIST_DYNAMIC_CONFIGURATIONS),
    Route("GET", "/admin/v2/brokers/configuration/values", live_values, BrokerOperation.LIST_DYNAMIC_CONFIGURATIONS),
    Route(
        "GET",
        "/admin/v2/brokers/configuration/runtime",
        runtime_configuration,
        BrokerOperation.LIST_RUNTIME_CONFIGURATIONS,
    ),
    Route(
        "GET",
        "/admin/v2/brokers/configuration/synchronization",
        synchronization,
        BrokerOperation.LIST_RUNTIME_CONFIGURATIONS,
    ),
    Route(
        "POST",
        "/admin/v2/brokers/configuration/{key}/{value}",
        change_setting,
        BrokerOperation.UPDATE_DYNAMIC_CONFIGURATION,
    ),
    Route(
        "DELETE",
        "/admin/v2/brokers/configuration/{key}",
        unchange_setting,
        BrokerOperation.DELETE_DYNAMIC_CONFIGURATION,
    ),
    Route("GET", "/admin/v2/brokers/backlog-quota-check", check_backlog_quotas, BrokerOperation.CHECK_BACKLOG_QUOTA),
    Route("POST", "/admin/v2/brokers/backup", start_backup, SuperUser.BACK_UP),
    Route("GET", "/admin/v2/brokers/backup", backup_state, SuperUser.LOOK_AT_BACKUP),
    Route("POST", "/admin/v2/brokers/shutdown", shut_down, BrokerOperation.SHUTDOWN),
    Route("GET", "/admin/v2/brokers", list_brokers, BrokerOperation.LIST_BROKERS),
    Route("GET", "/admin/v2/brokers/{cluster}", list_brokers, BrokerOperation.LIST_BROKERS),
    Route("GET", "/status.html", status, Anyone("it tells load balancers whether to come")),
]
METRICS = [
    Route("GET", "/metrics", metrics, Anyone("scrapers bring no credentials, as in Pulsar's default")),
]
