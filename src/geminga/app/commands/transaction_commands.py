"""``geminga admin transactions ...``: the commands of ``pulsar-admin transactions``, over a broker's admin REST."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Annotated, Final

import typer

from geminga.app.commands.admin_commands import DEFAULT_ADMIN_URL, AdminUrl, AsJson, ask, place_of

_BASE: Final = "/admin/v3/transactions"
#: Units of times, in milliseconds; a number alone is seconds.
_UNITS_MS: Final = {"": 1_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Transactions.")

Coordinator = Annotated[int | None, typer.Option("-c", "--coordinator-id", help="One coordinator instead of all.")]
OneCoordinator = Annotated[int, typer.Option("-c", "--coordinator-id", help="The coordinator.")]
Most = Annotated[int, typer.Option("-m", "--most-sig-bits", help="The first number of the id: its coordinator.")]
Least = Annotated[int, typer.Option("-l", "--least-sig-bits", help="The second number of the id.")]
Topic = Annotated[str, typer.Option("-t", "--topic", help="The topic, or a partition of it.")]
Subscription = Annotated[str, typer.Option("-s", "--sub-name", help="The subscription.")]
LowWaterMarks = Annotated[bool, typer.Option("-l", "--low-water-mark", help="With the low watermark of coordinators.")]


def milliseconds_of(text: str) -> int:
    """``10s``, ``5m``, ``2h``, ``1d``, ``1w``, or seconds; raises typer.BadParameter."""
    number, unit = (text[:-1], text[-1:].lower()) if text[-1:].isalpha() else (text, "")
    if not (number.isascii() and number.isdecimal()) or unit not in _UNITS_MS:
        raise typer.BadParameter(f"{text!r} is no time such as 10s, 5m, 2h or 1d")
    return int(number) * _UNITS_MS[unit]


def _shows(name: str) -> Callable[[Callable[..., str]], None]:
    """A command that shows what the broker answers: the function takes its own options and gives the path and query.

    Which broker is asked and how the answer is shown are options of all of them.
    """

    def add(path: Callable[..., str]) -> None:
        def run(admin_url: str, is_json: bool, **own: object) -> None:
            from geminga.app.commands.documents import render

            print(render(ask(admin_url, f"{_BASE}/{path(**own)}"), is_json=is_json))

        shared = [
            Parameter("admin_url", Parameter.KEYWORD_ONLY, default=DEFAULT_ADMIN_URL, annotation=AdminUrl),
            Parameter("is_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
        ]
        options = [*signature(path, eval_str=True).parameters.values(), *shared]
        # What the command line is made from.
        run.__dict__["__signature__"] = Signature(options)
        run.__annotations__ = {each.name: each.annotation for each in options}
        commands.command(name, help=path.__doc__)(run)

    return add


def _query(**values: object) -> str:
    """Of what is said: neither None nor False."""
    from urllib.parse import urlencode

    said = {key: "true" if value is True else value for key, value in values.items() if value not in (None, False)}
    return f"?{urlencode(said)}" if said else ""


def _place(topic: str, *more: object) -> str:
    """Of a persistent topic, and what follows it, as in paths; raises typer.BadParameter."""
    from urllib.parse import quote

    from geminga.model import TopicName

    if not TopicName.parse(topic).is_persistent:
        raise typer.BadParameter(f"{topic} is not persistent: transactions need messages that are stored")
    return "/".join([place_of(topic), *(quote(str(each), safe="") for each in more)])


@_shows("coordinators-list")
def _coordinators_list() -> str:
    """Which broker has which coordinator."""
    return "coordinators"


@_shows("coordinator-stats")
def _coordinator_stats(coordinator: Coordinator = None) -> str:
    """States of coordinators, how many transactions are open, the last number given."""
    return f"coordinatorStats{_query(coordinatorId=coordinator)}"


@_shows("coordinator-internal-stats")
def _coordinator_internal_stats(coordinator: OneCoordinator) -> str:
    """The log of a coordinator: its ledgers and cursor."""
    return f"coordinatorInternalStats/{coordinator}"


@commands.command("scale-transactionCoordinators")
def scale_coordinators(
    replicas: Annotated[int, typer.Option("-r", "--replicas", help="How many there are to be.")],
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """More coordinators."""
    ask(admin_url, f"{_BASE}/transactionCoordinator/replicas", "POST", replicas)


@_shows("transaction-metadata")
def _transaction_metadata(most: Most, least: Least) -> str:
    """State, time-out, topics and subscriptions of a transaction."""
    return f"transactionMetadata/{most}/{least}"


@_shows("slow-transactions")
def _slow_transactions(
    time: Annotated[str, typer.Option("-t", "--time", help="Open for longer than this: 10s, 5m, 2h, 1d.")],
    coordinator: Coordinator = None,
) -> str:
    """Transactions that are open for long."""
    return f"slowTransactions/{milliseconds_of(time)}{_query(coordinatorId=coordinator)}"


@commands.command("abort-transaction")
def abort_transaction(most: Most, least: Least, admin_url: AdminUrl = DEFAULT_ADMIN_URL) -> None:
    """Abort a transaction, whoever began it."""
    ask(admin_url, f"{_BASE}/abortTransaction/{most}/{least}", "POST")


@_shows("transaction-buffer-stats")
def _transaction_buffer_stats(topic: Topic, low_water_mark: LowWaterMarks = False) -> str:
    """What a topic has of transactions: how many are open, how far may be read."""
    return f"transactionBufferStats/{_place(topic)}{_query(lowWaterMarks=low_water_mark)}"


@_shows("buffer-snapshot-internal-stats")
def _buffer_snapshot_internal_stats(topic: Topic) -> str:
    """The topic in which aborted transactions are saved."""
    return f"transactionBufferInternalStats/{_place(topic)}"


@_shows("transaction-in-buffer-stats")
def _transaction_in_buffer_stats(topic: Topic, most: Most, least: Least) -> str:
    """What a topic has of one transaction."""
    return f"transactionInBufferStats/{_place(topic, most, least)}"


@_shows("pending-ack-stats")
def _pending_ack_stats(topic: Topic, subscription: Subscription, low_water_mark: LowWaterMarks = False) -> str:
    """What a subscription holds for transactions."""
    return f"pendingAckStats/{_place(topic, subscription)}{_query(lowWaterMarks=low_water_mark)}"


@_shows("pending-ack-internal-stats")
def _pending_ack_internal_stats(topic: Topic, subscription: Subscription) -> str:
    """The log of what a subscription holds for transactions."""
    return f"pendingAckInternalStats/{_place(topic, subscription)}"


@_shows("transaction-in-pending-ack-stats")
def _transaction_in_pending_ack_stats(topic: Topic, subscription: Subscription, most: Most, least: Least) -> str:
    """What a subscription holds cumulatively for one transaction."""
    return f"transactionInPendingAckStats/{_place(topic, subscription, most, least)}"


@_shows("position-stats-in-pending-ack")
def _position_stats_in_pending_ack(
    topic: Topic,
    subscription: Subscription,
    ledger: Annotated[int, typer.Option("-l", "--ledger-id", help="Of the message id.")],
    entry: Annotated[int, typer.Option("-e", "--entry-id", help="Of the message id.")],
    batch_index: Annotated[int | None, typer.Option("-b", "--batch-index", help="Of the message in its batch.")] = None,
) -> str:
    """Whether a transaction holds a message of a subscription."""
    place = _place(topic, subscription, ledger, entry)
    return f"positionStatsInPendingAck/{place}{_query(batchIndex=batch_index)}"
