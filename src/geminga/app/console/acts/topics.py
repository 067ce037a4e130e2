"""What is done to topics: made, widened, unloaded, ended, deleted."""

from __future__ import annotations

from typing import Final

from geminga.app.console.core.addresses import address
from geminga.app.console.core.positions import ledgers_of
from geminga.app.console.core.words import plural, size
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.reading.topics import Looked, look
from geminga.app.console.tables import Act, Done, Field, Question, Refusal, View

#: Partitions that are made by one act; Pulsar's own tools allow as many as the broker does.
PARTITIONS_MAX: Final = 10_000
_FORCED: Final = "forced"


def _page(topic: str) -> str:
    return address("/topic", topic=topic)


# ---- made


async def create_question(view: View) -> Question:
    """Where, what, and how wide."""
    namespace, name = view.given("namespace").strip() or "public/default", view.given("name")
    partitions = view.given("partitions") or "0"
    return Question(
        "Create a topic. Partitions let several consumers of one subscription share it by parts, each part in order; "
        "their number can be raised later, and never lowered.",
        fields=(
            Field("namespace", "Namespace", namespace, hint="tenant/namespace"),
            Field("name", "Name", name),
            Field("partitions", "Partitions", partitions, "number", hint="0: it is not partitioned."),
        ),
        button="Create the topic",
        is_harmless=True,
        back=address("/topics", namespace=namespace),
    )


async def create(view: View) -> Done:
    """With partitions or without; one that is there is refused."""
    namespace, name = view.wanted("namespace").strip(), view.wanted("name")
    partitions = view.number("partitions", 0, least=0, most=PARTITIONS_MAX)
    topic = str(topic_named(name if "://" in name else f"persistent://{namespace}/{name}"))
    if partitions:
        await view.admin.topics.create_partitioned(topic, partitions)
        return Done(f"{topic} is created with {plural(partitions, 'partition')}.", _page(topic))
    await view.admin.topics.create(topic)
    return Done(f"{topic} is created.", _page(topic))


async def widen_question(view: View) -> Question:
    """How many it has, and how many it is to have."""
    looked = await look(view.admin, view.wanted("topic"))
    if not looked.partitions:
        obstacle = "It is not partitioned. Partitions can be added to a partitioned topic alone."
        return Question(f"Add partitions to {looked.name}.", obstacle=obstacle, back=_page(looked.name))
    return Question(
        f"{looked.name} has {plural(looked.partitions, 'partition')}. Messages of one key may go to another partition "
        "than before: from then on the order of a key holds for what is published later. It can not be taken back.",
        fields=(
            Field(
                "partitions",
                "Partitions in all",
                view.given("partitions") or str(looked.partitions + 1),
                "number",
                hint=f"More than {looked.partitions:,}.",
            ),
        ),
        button="Add partitions",
        chosen={"topic": looked.name},
        back=_page(looked.name),
    )


async def widen(view: View) -> Done:
    """Raises Refusal for a number that is no more than there are."""
    looked = await look(view.admin, view.wanted("topic"))
    partitions = view.number("partitions", looked.partitions + 1, least=looked.partitions + 1, most=PARTITIONS_MAX)
    await view.admin.topics.update_partitioned(looked.name, partitions)
    return Done(f"{looked.name} has {plural(partitions, 'partition')} now.", _page(looked.name))


# ---- moved, ended, deleted


async def unload_question(view: View) -> Question:
    """Clients come back by themselves."""
    looked = await look(view.admin, view.wanted("topic"))
    return Question(
        f"Unload {looked.name}: its {_clients(looked)} are cut off for a moment and come back by themselves. "
        "No message is lost; what was delivered and not acknowledged is delivered again.",
        button="Unload the topic",
        chosen={"topic": looked.name},
        is_harmless=True,
        back=_page(looked.name),
    )


async def unload(view: View) -> Done:
    """All partitions of a partitioned one."""
    topic = str(topic_named(view.wanted("topic")))
    await view.admin.topics.unload(topic)
    return Done(f"{topic} is unloaded; whoever asks next loads it.", _page(topic))


async def terminate_question(view: View) -> Question:
    """Nothing more is published, ever."""
    looked = await look(view.admin, view.wanted("topic"))
    producers = len(looked.stats.get("publishers", ()))
    return Question(
        f"Terminate {looked.name}: nothing can be published to it any more, by {plural(producers, 'producer')} that "
        f"{'is' if producers == 1 else 'are'} connected or by any other. What is stored is still delivered. "
        "It can not be taken back.",
        button="Terminate the topic",
        hits=producers,
        chosen={"topic": looked.name},
        back=_page(looked.name),
    )


async def terminate(view: View) -> Done:
    """All partitions of a partitioned one."""
    looked = await look(view.admin, view.wanted("topic"))
    if looked.partitions:
        await view.admin.topics.terminate_partitioned(looked.name)
    else:
        await view.admin.topics.terminate(looked.name)
    return Done(f"{looked.name} is terminated.", _page(looked.name))


async def delete_question(view: View) -> Question:
    """How much is stored, who has not had it, and who is connected."""
    looked = await look(view.admin, view.wanted("topic"))
    subscriptions = len(looked.subscriptions)
    entries = await _entries(view, looked)
    stored = size(float(looked.stats.get("storageSize", 0)))
    left = sum(int(one.get("msgBacklog", 0)) for one in looked.subscriptions.values())
    unread = plural(left, "unacknowledged message or batch", "unacknowledged messages and batches")
    counted = f"{plural(entries, 'stored message or batch', 'stored messages and batches')} ({stored})"
    clients = _clients(looked)
    in_use = (
        ""
        if clients == _NOBODY
        else (f" Its {clients} are cut off; coming back they make the topic anew, where its namespace has that.")
    )
    return Question(
        f"Delete {looked.name} with {counted}, its schemas and {plural(subscriptions, 'subscription')} with "
        f"{unread}.{in_use} It can not be taken back.",
        button="Delete the topic",
        hits=entries,
        chosen={"topic": looked.name, **({_FORCED: "yes"} if in_use else {})},
        back=_page(looked.name),
    )


async def delete(view: View) -> Done:
    """In use only where the question said so."""
    looked = await look(view.admin, view.wanted("topic"))
    forced = view.form.get(_FORCED) == "yes"
    if looked.partitions:
        await view.admin.topics.delete_partitioned(looked.name, force=forced)
    else:
        await view.admin.topics.delete(looked.name, force=forced)
    namespace = topic_named(looked.name).namespace
    return Done(f"{looked.name} is deleted.", address("/topics", namespace=namespace))


_NOBODY: Final = "0 producers and 0 consumers"


def _clients(looked: Looked) -> str:
    consumers = sum(len(one.get("consumers", ())) for one in looked.subscriptions.values())
    return f"{plural(len(looked.stats.get('publishers', ())), 'producer')} and {plural(consumers, 'consumer')}"


async def _entries(view: View, looked: Looked) -> int:
    """That are stored, in all partitions; 0 of a topic that stores nothing."""
    if topic_named(looked.name).domain == "non-persistent":
        return 0
    if not looked.partitions:
        return sum(piece.entries for piece in ledgers_of(await view.admin.topics.internal_stats(looked.name)))
    answer = await view.admin.topics.partitioned_internal_stats(looked.name)
    found = answer.get("partitions", {})
    if not isinstance(found, dict):
        raise Refusal(f"The broker does not say what is stored in {looked.name}.", 502)
    return sum(piece.entries for one in found.values() for piece in ledgers_of(one))


ACTS: Final = (
    Act("create-topic", "Create a topic", create_question, create),
    Act("add-partitions", "Add partitions", widen_question, widen),
    Act("unload-topic", "Unload a topic", unload_question, unload),
    Act("terminate-topic", "Terminate a topic", terminate_question, terminate),
    Act("delete-topic", "Delete a topic", delete_question, delete),
)
