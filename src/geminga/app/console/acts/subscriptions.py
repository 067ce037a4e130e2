"""What is done to subscriptions: made, moved, emptied, deleted."""

from __future__ import annotations

from typing import Final

from geminga.app.console.core.addresses import address
from geminga.app.console.core.cursor_moves import BEGINNING, CursorMove
from geminga.app.console.core.moments import iso_time, milliseconds_of
from geminga.app.console.core.positions import EntryPlace, start_of
from geminga.app.console.core.words import plural, waiting
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.reading.topics import Looked, look, messages_waiting, moves
from geminga.app.console.tables import Act, Done, Field, Question, Refusal, View

#: Messages that one act skips.
SKIPPED_MAX: Final = 1_000_000_000
#: Seconds of the oldest age.
AGE_S_MAX: Final = 100 * 366 * 86_400
_EARLIEST: Final = "earliest"
_LATEST: Final = "latest"
_TIME: Final = "time"
_ID: Final = "message"
_WHERE: Final = (
    (_EARLIEST, "the earliest message that is stored"),
    (_LATEST, "the end: what is published later"),
    (_TIME, "the first message published at a time or later"),
    (_ID, "a message id"),
)
_FORCED: Final = "forced"
#: What is counted is entries: a batch is one.
_ENTRY: Final = ("message or batch", "messages and batches")


def _page(topic: str, subscription: str) -> str:
    return address("/subscription", topic=topic, subscription=subscription)


async def _found(view: View) -> tuple[Looked, str]:
    """The topic, and a subscription that it has; raises Refusal, AdminError."""
    looked, name = await look(view.admin, view.wanted("topic")), view.wanted("subscription")
    looked.subscription(name)
    return looked, name


def _backlog(looked: Looked, name: str) -> int:
    return int(looked.subscription(name).get("msgBacklog", 0))


async def _waiting(view: View, looked: Looked, name: str) -> str:
    return waiting(_backlog(looked, name), await messages_waiting(view.admin, looked, name))


# ---- made


async def create_question(view: View) -> Question:
    """Its name, and where it begins."""
    topic = str(topic_named(view.wanted("topic")))
    return Question(
        f"Create a subscription of {topic}: from then on messages are kept for it until it acknowledges them.",
        fields=(
            Field("subscription", "Name", view.given("subscription")),
            Field("position", "It begins with", view.given("position") or _LATEST, "select", _WHERE[:2]),
        ),
        button="Create the subscription",
        chosen={"topic": topic},
        is_harmless=True,
        back=address("/topic", topic=topic),
    )


async def create(view: View) -> Done:
    """One that is there is refused. Raises Refusal, AdminError."""
    topic, name = str(topic_named(view.wanted("topic"))), view.wanted("subscription")
    position = view.given("position") or _LATEST
    if position not in (_EARLIEST, _LATEST):
        raise Refusal(f"A subscription begins with earliest or latest, not “{position[:100]}”.")
    await view.admin.subscriptions.create(topic, name, position)
    return Done(f"Subscription {name} of {topic} is created.", _page(topic, name))


# ---- moved


async def reset_question(view: View) -> Question:
    """Asks where to first; then says what is delivered again, and what is not any more."""
    looked, name = await _found(view)
    chosen = {"topic": looked.name, "subscription": name}
    back = _page(looked.name, name)
    where = view.given("where")
    if not where:
        return Question(
            f"Reset the cursor of {name} on {looked.name}. What that delivers again or skips is said next.",
            fields=(
                Field("where", "Go to", _EARLIEST, "select", _WHERE),
                Field("at", "Time (UTC)", "", "datetime-local", (), "For a time alone.", False),
                Field("id", "Message id", "", "text", (), "For a message id alone: LEDGER:ENTRY.", False),
            ),
            button="Say what that does",
            chosen=chosen,
            is_unfinished=True,
            back=back,
        )
    to_ms, place, words = _goal(view, where)
    if place is not None and where == _ID and looked.partitions:
        obstacle = "A message id is in one partition: reset the cursors of partitions, one by one."
        return Question(f"Reset the cursor of {name} on {looked.name}.", obstacle=obstacle, back=back)
    move = await moves(view.admin, looked, name, to_ms=to_ms, place=place)
    fixed = {"at": str(to_ms)} if to_ms is not None else {"id": str(place)} if where == _ID else {}
    return Question(
        f"Reset the cursor of {name} on {looked.name} to {words}: {_told(move)}. Consumers are cut off for a moment.",
        button="Reset the cursor",
        hits=move.hits,
        chosen={**chosen, "where": where, **fixed},
        back=back,
    )


async def reset(view: View) -> Done:
    """Raises Refusal, AdminError."""
    topic, name = str(topic_named(view.wanted("topic"))), view.wanted("subscription")
    where = view.wanted("where")
    to_ms, place, words = _goal(view, where)
    subscriptions = view.admin.subscriptions
    if to_ms is not None:
        await subscriptions.reset_to_time(topic, name, to_ms)
    elif where == _ID and place is not None:
        await subscriptions.reset(topic, name, {"ledgerId": place.ledger_id, "entryId": place.entry_id})
    elif (await look(view.admin, topic)).partitions:
        # Of a partitioned topic a time alone is taken: before all, or behind all.
        await (subscriptions.skip_all(topic, name) if where == _LATEST else subscriptions.reset_to_time(topic, name, 0))
    else:
        await subscriptions.reset(topic, name, where)
    return Done(f"The cursor of {name} on {topic} is at {words}.", _page(topic, name))


def _goal(view: View, where: str) -> tuple[int | None, EntryPlace | None, str]:
    """A time, a place, or the end, and its words; raises Refusal, MomentError, PlaceError."""
    if where == _TIME:
        to_ms = milliseconds_of(view.wanted("at"))
        return to_ms, None, f"the first message published at {iso_time(to_ms)} or later"
    if where == _ID:
        place = start_of(view.wanted("id")).place
        return None, place, f"message {place}"
    if where == _EARLIEST:
        return None, BEGINNING, "the earliest message that is stored"
    if where == _LATEST:
        return None, None, "the end"
    raise Refusal(f"A cursor goes to earliest, latest, a time or a message, not “{where[:100]}”.")


def _told(move: CursorMove) -> str:
    again = f"{plural(move.redelivered, *_ENTRY)} {'is' if move.redelivered == 1 else 'are'} delivered again"
    skipped = f"up to {plural(move.skipped, *_ENTRY)} will never be delivered to it"
    if not move.hits:
        return "nothing is delivered again, and nothing skipped"
    return " and ".join([*([again] if move.redelivered else []), *([skipped] if move.skipped else [])])


# ---- emptied


async def skip_question(view: View) -> Question:
    """Asks how many first."""
    looked, name = await _found(view)
    chosen, back = {"topic": looked.name, "subscription": name}, _page(looked.name, name)
    if looked.partitions:
        obstacle = "Messages of a partitioned topic have no order: skip those of its partitions, one by one."
        return Question(f"Skip messages of {name} on {looked.name}.", obstacle=obstacle, back=back)
    backlog = _backlog(looked, name)
    if not view.given("count"):
        return Question(
            f"{name} has not acknowledged {plural(backlog, *_ENTRY)} of {looked.name}. The oldest are skipped.",
            fields=(Field("count", "How many to skip", "1", "number", hint="A batch of messages counts as one."),),
            button="Say what that does",
            chosen=chosen,
            is_unfinished=True,
            back=back,
        )
    count = view.number("count", 1, least=1, most=SKIPPED_MAX)
    hits = min(count, backlog)
    return Question(
        f"Skip {plural(hits, *_ENTRY)} of {name} on {looked.name}, the oldest of {backlog:,}: they will never be "
        "delivered to it.",
        button=f"Skip {plural(hits, *_ENTRY)}",
        hits=hits,
        chosen={**chosen, "count": str(count)},
        back=back,
    )


async def skip(view: View) -> Done:
    """The oldest."""
    topic, name = str(topic_named(view.wanted("topic"))), view.wanted("subscription")
    count = view.number("count", 1, least=1, most=SKIPPED_MAX)
    await view.admin.subscriptions.skip(topic, name, count)
    return Done(f"Skipped {plural(count, *_ENTRY)} of {name} on {topic}, or all there were.", _page(topic, name))


async def clear_question(view: View) -> Question:
    """How many messages are skipped."""
    looked, name = await _found(view)
    messages = await _waiting(view, looked, name)
    return Question(
        f"Clear the backlog of {name} on {looked.name}: {messages} will never be delivered to it.",
        button=f"Clear {messages}",
        hits=_backlog(looked, name),
        chosen={"topic": looked.name, "subscription": name},
        back=_page(looked.name, name),
    )


async def clear(view: View) -> Done:
    """All that is there now."""
    topic, name = str(topic_named(view.wanted("topic"))), view.wanted("subscription")
    await view.admin.subscriptions.skip_all(topic, name)
    return Done(f"The backlog of {name} on {topic} is cleared.", _page(topic, name))


async def expire_question(view: View) -> Question:
    """Asks how old first."""
    looked, name = await _found(view)
    chosen, back = {"topic": looked.name, "subscription": name}, _page(looked.name, name)
    if not view.given("seconds"):
        return Question(
            f"Expire messages of {name} on {looked.name} that are older than an age: they count as acknowledged.",
            fields=(Field("seconds", "Older than, seconds", "3600", "number"),),
            button="Say what that does",
            chosen=chosen,
            is_unfinished=True,
            back=back,
        )
    seconds = view.number("seconds", 3600, least=1, most=AGE_S_MAX)
    move = await moves(view.admin, looked, name, to_ms=max(0, view.now_ms - seconds * 1000), place=None)
    hits = min(move.skipped, max(_backlog(looked, name), 0))
    return Question(
        f"Expire what {name} on {looked.name} has not acknowledged for {plural(seconds, 'second')}: up to "
        f"{plural(hits, *_ENTRY)} will never be delivered to it.",
        button="Expire them",
        hits=hits,
        chosen={**chosen, "seconds": str(seconds)},
        back=back,
    )


async def expire(view: View) -> Done:
    """The broker goes on with it behind the answer."""
    topic, name = str(topic_named(view.wanted("topic"))), view.wanted("subscription")
    seconds = view.number("seconds", 3600, least=1, most=AGE_S_MAX)
    await view.admin.subscriptions.expire_messages(topic, name, seconds)
    return Done(
        f"Messages of {name} on {topic} that are older than {plural(seconds, 'second')} expire now.", _page(topic, name)
    )


# ---- deleted


async def delete_question(view: View) -> Question:
    """What it has not had, and who is connected."""
    looked, name = await _found(view)
    consumers = len(looked.subscription(name).get("consumers", ()))
    connected = f" {plural(consumers, 'consumer')} will be cut off." if consumers else ""
    return Question(
        f"Delete subscription {name} of {looked.name}: {await _waiting(view, looked, name)} will never be "
        f"delivered to it.{connected} It can not be taken back.",
        button="Delete the subscription",
        hits=_backlog(looked, name),
        chosen={"topic": looked.name, "subscription": name, **({_FORCED: "yes"} if consumers else {})},
        back=_page(looked.name, name),
    )


async def delete(view: View) -> Done:
    """In use only where the question said so."""
    topic, name = str(topic_named(view.wanted("topic"))), view.wanted("subscription")
    await view.admin.subscriptions.delete(topic, name, force=view.form.get(_FORCED) == "yes")
    return Done(f"Subscription {name} of {topic} is deleted.", address("/topic", topic=topic))


ACTS: Final = (
    Act("create-subscription", "Create a subscription", create_question, create),
    Act("reset-cursor", "Reset a cursor", reset_question, reset),
    Act("skip-messages", "Skip messages", skip_question, skip),
    Act("clear-backlog", "Clear a backlog", clear_question, clear),
    Act("expire-messages", "Expire messages", expire_question, expire),
    Act("delete-subscription", "Delete a subscription", delete_question, delete),
)
