"""A topic is compacted."""

from __future__ import annotations

from typing import Final

from geminga.app.console.core.addresses import address
from geminga.app.console.core.words import plural
from geminga.app.console.reading.choosing import chosen_topic
from geminga.app.console.reading.standing import compaction_of
from geminga.app.console.tables import Act, Done, Question, View


async def compact_question(view: View) -> Question:
    """How much is not compacted."""
    chosen = await chosen_topic(view.admin, view.wanted("topic"))
    behind: int | None = 0 if chosen.partition_count == len(chosen.partitions) else None
    for name in [] if behind is None else chosen.partitions or [chosen.whole]:
        found = (await compaction_of(view.admin, name)).entries_behind
        behind = behind + found if behind is not None and found is not None else None
    much = "" if behind is None else f" {plural(behind, 'entry', 'entries')} not compacted."
    return Question(
        f"Compact {chosen.whole}: readers of compacted messages get the newest message of each key alone.{much} "
        "Nothing is taken from subscriptions, and it goes on in the background.",
        button="Compact",
        chosen={"topic": chosen.whole},
        is_harmless=True,
        back=address("/compaction", topic=chosen.whole),
    )


async def compact(view: View) -> Done:
    """Of all partitions."""
    chosen = await chosen_topic(view.admin, view.wanted("topic"))
    await view.admin.compaction.start(chosen.whole)
    return Done(f"The compaction of {chosen.whole} has begun.", address("/compaction", topic=chosen.whole))


ACTS: Final = (Act("compact", "Compact a topic", compact_question, compact),)
