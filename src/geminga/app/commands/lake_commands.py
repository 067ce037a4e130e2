"""``geminga lake ...``: which ledgers of a topic are in the lake; send them there. Over a broker's admin REST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import typer

from geminga.app.commands.admin_commands import DEFAULT_ADMIN_URL, AdminUrl, AsJson, Topic, ask, place_of
from geminga.app.commands.client_security import add_security

#: Seconds between two questions of a command that waits.
_ASK_AGAIN_S: Final = 0.5
_LOADED_ANEW: Final = "the topic was loaded anew meanwhile, give the command again"

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Ledgers of topics as Parquet files.")
add_security(commands)


def _path(topic: str) -> str:
    from geminga.model import TopicName

    if not TopicName.parse(topic).is_persistent:
        raise typer.BadParameter(f"{topic} is not persistent: it has no ledgers")
    return f"/admin/v2/persistent/{place_of(topic)}"


def ledgers_of(stats: dict[str, Any]) -> list[dict[str, int]]:
    """The ledgers of a topic's internal statistics, where the size of the newest, which is open, stands apart."""
    ledgers = list(stats["ledgers"])
    if ledgers:
        ledgers[-1] = {**ledgers[-1], "size": stats["currentLedgerSize"]}
    return ledgers


def first_to_stay(ledgers: list[dict[str, int]], size_threshold: int) -> int | None:
    """The oldest ledger that stays on the bookies; None: all of them do. As ``pulsar-admin topics offload`` counts."""
    total = 0
    stays: int | None = None
    for ledger in reversed(ledgers):
        total += ledger["size"]
        if stays is not None and total > size_threshold:
            return stays
        stays = ledger["ledgerId"]
    return None


@commands.command("offload")
def offload(
    topic: Topic,
    size_threshold: Annotated[
        int, typer.Option("-s", "--size-threshold", min=0, help="Bytes that stay on the bookies, the newest ones.")
    ] = 0,
    wait: Annotated[bool, typer.Option("-w", "--wait", help="Until it is done.")] = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
) -> None:
    """Send closed ledgers to the lake."""
    path = _path(topic)
    stats = cast("dict[str, Any]", ask(admin_url, f"{path}/internalStats"))
    ledger_id = first_to_stay(ledgers_of(stats), size_threshold)
    if ledger_id is None:
        print("Nothing to offload: there is no closed ledger behind the threshold")
        return
    message_id = {"ledgerId": ledger_id, "entryId": 0, "partitionIndex": -1}
    ask(admin_url, f"{path}/offload", "PUT", message_id)
    print(f"Offload triggered for {topic}: ledgers before {ledger_id}")
    if wait:
        _wait(admin_url, path)


def _wait(admin_url: str, path: str) -> None:
    import time

    from geminga.model.errors import UnavailableError

    while True:
        found = cast("dict[str, object]", ask(admin_url, f"{path}/offload"))
        if found["status"] == "ERROR":
            raise UnavailableError(f"the offload failed: {found['lastError']}")
        if found["status"] == "NOT_RUN":
            raise UnavailableError(f"the offload was cut off: {_LOADED_ANEW}")
        if found["status"] != "RUNNING":
            print("Offload was a success")
            return
        time.sleep(_ASK_AGAIN_S)


@commands.command("status")
def status(topic: Topic, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False) -> None:
    """How the last offload went, what the policies are, which files are still to be deleted."""
    from geminga.app.commands.documents import render

    found = cast("dict[str, object]", ask(admin_url, f"{_path(topic)}/lake"))
    ledgers = cast("list[dict[str, object]]", found.pop("ledgers"))
    away = [ledger for ledger in ledgers if ledger["isOffloaded"]]
    counts = {
        "ledgers": len(ledgers),
        "offloadedLedgers": len(away),
        "offloadedBytes": sum(cast("int", ledger["size"]) for ledger in away),
        "onlyInTheLake": sum(not ledger["isOnBookies"] for ledger in ledgers),
    }
    print(render({**found, **counts}, is_json=is_json))


@commands.command("restore")
def restore(topic: Topic, admin_url: AdminUrl = DEFAULT_ADMIN_URL) -> None:
    """Bring ledgers back to the bookies and take them out of the lake; thresholds have to be off.

    An error if some stay there.
    """
    import time

    from geminga.model.errors import UnavailableError

    path = _path(topic)
    before = cast("dict[str, list[dict[str, object]]]", ask(admin_url, f"{path}/lake"))["ledgers"]
    if any(ledger["isOffloaded"] for ledger in before):
        ask(admin_url, f"{path}/lake/restore", "PUT")
    while True:
        found = cast("dict[str, dict[str, object]]", ask(admin_url, f"{path}/lake"))
        if found["restore"]["status"] == "ERROR":
            done, last_error = found["restore"]["restored"], found["restore"]["lastError"]
            raise UnavailableError(f"{done} ledgers were restored, then: {last_error}")
        if found["restore"]["status"] != "RUNNING":
            break
        time.sleep(_ASK_AGAIN_S)
    left = sum(bool(ledger["isOffloaded"]) for ledger in cast("list[dict[str, object]]", found["ledgers"]))
    if left and found["restore"]["status"] == "NOT_RUN":
        raise UnavailableError(f"the restore was cut off, {left} ledgers are in the lake: {_LOADED_ANEW}")
    told = f"{found['restore']['restored']} ledgers are on the bookies alone again, {left} are in the lake"
    if left:
        raise UnavailableError(
            f"{told}: what Apache's offloader wrote its broker brings back, what came meanwhile does this"
        )
    print(told)


@commands.command("holes")
def holes(
    topic: Topic,
    ledger: Annotated[
        list[int] | None, typer.Option("--ledger", help="Only this one, read whole; may be repeated.")
    ] = None,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """Ledgers of a topic that can not be read, in the lake or on bookies, and those that were given up."""
    from geminga.app.commands.documents import render

    found = ask(admin_url, f"{_path(topic)}/holes{_query(ledger or ())}")
    print(render(found, is_json=is_json))


def _query(ledger_ids: Sequence[int]) -> str:
    return "?" + "&".join(f"ledgerId={each}" for each in ledger_ids) if ledger_ids else ""


@commands.command("skip-hole")
def skip_hole(
    topic: Topic,
    ledger: Annotated[int, typer.Argument(help="The ledger that is given up.")],
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be lost.")] = False,
    is_forced: Annotated[
        bool, typer.Option("--force", help="Also a ledger that is only out of reach, and may come back.")
    ] = False,
    is_whole: Annotated[
        bool, typer.Option("--whole", help="Also a ledger of which some entries can be read: they are lost with it.")
    ] = False,
    is_end: Annotated[
        bool,
        typer.Option(
            "--end",
            help="Only what lies behind its newest entry that can be read, where that keeps the topic unloaded.",
        ),
    ] = False,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """Give up a ledger that can not be read: readers, subscriptions and deduplication go on behind it, for good."""
    from geminga.app.commands.documents import render
    from geminga.model.errors import PreconditionFailedError

    path = _path(topic)
    if is_end:
        end = {"ledgerId": ledger, "end": True, "force": is_forced, "dry": is_dry}
        told = ask(admin_url, f"{path}/holes/skip", "PUT", end)
        print(render({"wouldLose" if is_dry else "lost": told}, is_json=is_json))
        return
    if is_dry:
        found = cast("dict[str, list[dict[str, object]]]", ask(admin_url, f"{path}/holes{_query([ledger])}"))
        lost = next((hole for hole in found["holes"] if hole["ledgerId"] == ledger), None)
        if lost is None:
            raise PreconditionFailedError(f"Ledger {ledger} can be read, all of it: there is nothing to skip")
        print(render({"wouldLose": lost}, is_json=is_json))
        return
    body = {"ledgerId": ledger, "force": is_forced, "whole": is_whole}
    print(render({"lost": ask(admin_url, f"{path}/holes/skip", "PUT", body)}, is_json=is_json))


@commands.command("list")
def list_ledgers(topic: Topic, admin_url: AdminUrl = DEFAULT_ADMIN_URL, is_json: AsJson = False) -> None:
    """The ledgers of a topic, and where each lies."""
    from geminga.app.commands.documents import render

    found = cast("dict[str, object]", ask(admin_url, f"{_path(topic)}/lake"))
    print(render({"ledgers": found["ledgers"]}, is_json=is_json))
