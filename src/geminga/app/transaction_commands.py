"""``geminga admin transactions ...``: the commands of ``pulsar-admin transactions``, over a broker's admin REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from geminga.app.admin_commands import DEFAULT_ADMIN_URL, AdminUrl, AsJson, ask, place_of

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


def _show(url: str, path: str, is_json: bool, **query: object) -> None:
    from geminga.app.documents import render

    print(render(ask(url, f"{_BASE}/{path}{_query(query)}"), is_json=is_json))


def _query(values: Mapping[str, object]) -> str:
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


@commands.command("coordinators-list")
def coordinators_list(admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False) -> None:
    """Which broker has which coordinator."""
    _show(admin_url, "coordinators", is_json)


@commands.command("coordinator-stats")
def coordinator_stats(
    coordinator: Coordinator = None, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False
) -> None:
    """States of coordinators, how many transactions are open, the last number given."""
    _show(admin_url, "coordinatorStats", is_json, coordinatorId=coordinator)


@commands.command("coordinator-internal-stats")
def coordinator_internal_stats(
    coordinator: OneCoordinator, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False
) -> None:
    """The log of a coordinator: its ledgers and cursor."""
    _show(admin_url, f"coordinatorInternalStats/{coordinator}", is_json)


@commands.command("scale-transactionCoordinators")
def scale_coordinators(
    replicas: Annotated[int, typer.Option("-r", "--replicas", help="How many there are to be.")],
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """More coordinators."""
    ask(admin_url, f"{_BASE}/transactionCoordinator/replicas", "POST", replicas)


@commands.command("transaction-metadata")
def transaction_metadata(
    most: Most, least: Least, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False
) -> None:
    """State, time-out, topics and subscriptions of a transaction."""
    _show(admin_url, f"transactionMetadata/{most}/{least}", is_json)


@commands.command("slow-transactions")
def slow_transactions(
    time: Annotated[str, typer.Option("-t", "--time", help="Open for longer than this: 10s, 5m, 2h, 1d.")],
    coordinator: Coordinator = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """Transactions that are open for long."""
    _show(admin_url, f"slowTransactions/{milliseconds_of(time)}", is_json, coordinatorId=coordinator)


@commands.command("abort-transaction")
def abort_transaction(most: Most, least: Least, admin_url: AdminUrl = DEFAULT_ADMIN_URL) -> None:
    """Abort a transaction, whoever began it."""
    ask(admin_url, f"{_BASE}/abortTransaction/{most}/{least}", "POST")


@commands.command("transaction-buffer-stats")
def transaction_buffer_stats(
    topic: Topic,
    low_water_mark: LowWaterMarks = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """What a topic has of transactions: how many are open, how far may be read."""
    _show(admin_url, f"transactionBufferStats/{_place(topic)}", is_json, lowWaterMarks=low_water_mark)


@commands.command("buffer-snapshot-internal-stats")
def buffer_snapshot_internal_stats(
    topic: Topic, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False
) -> None:
    """The topic in which aborted transactions are saved."""
    _show(admin_url, f"transactionBufferInternalStats/{_place(topic)}", is_json)


@commands.command("transaction-in-buffer-stats")
def transaction_in_buffer_stats(
    topic: Topic, most: Most, least: Least, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False
) -> None:
    """What a topic has of one transaction."""
    _show(admin_url, f"transactionInBufferStats/{_place(topic, most, least)}", is_json)


@commands.command("pending-ack-stats")
def pending_ack_stats(
    topic: Topic,
    subscription: Subscription,
    low_water_mark: LowWaterMarks = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """What a subscription holds for transactions."""
    _show(admin_url, f"pendingAckStats/{_place(topic, subscription)}", is_json, lowWaterMarks=low_water_mark)


@commands.command("pending-ack-internal-stats")
def pending_ack_internal_stats(
    topic: Topic, subscription: Subscription, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False
) -> None:
    """The log of what a subscription holds for transactions."""
    _show(admin_url, f"pendingAckInternalStats/{_place(topic, subscription)}", is_json)


@commands.command("transaction-in-pending-ack-stats")
def transaction_in_pending_ack_stats(
    topic: Topic,
    subscription: Subscription,
    most: Most,
    least: Least,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """What a subscription holds cumulatively for one transaction."""
    _show(admin_url, f"transactionInPendingAckStats/{_place(topic, subscription, most, least)}", is_json)


@commands.command("position-stats-in-pending-ack")
def position_stats_in_pending_ack(
    topic: Topic,
    subscription: Subscription,
    ledger: Annotated[int, typer.Option("-l", "--ledger-id", help="Of the message id.")],
    entry: Annotated[int, typer.Option("-e", "--entry-id", help="Of the message id.")],
    batch_index: Annotated[int | None, typer.Option("-b", "--batch-index", help="Of the message in its batch.")] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """Whether a transaction holds a message of a subscription."""
    place = _place(topic, subscription, ledger, entry)
    _show(admin_url, f"positionStatsInPendingAck/{place}", is_json, batchIndex=batch_index)
