"""Server-sent events (the HTML standard, "Server-sent events"), and the ids by which a tail goes on. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from geminga.broker.core.coercion import BodyError, Document
from geminga.broker.rest.message_routes.core.message_ids import MessageRef, parse_message_id

#: A comment, which keeps a connection alive and finds out whether it is.
HEARTBEAT: Final = b": \n\n"
#: Characters of an id that a client may send.
ID_CHARACTERS_MAX: Final = 8192


def event(document: Document, *, kind: str = "", event_id: str = "") -> bytes:
    """One event; ``kind`` empty: a message."""
    lines = [f"event: {kind}"] if kind else []
    lines += [f"id: {event_id}"] if event_id else []
    # JSON has no line ends of its own.
    lines.append(f"data: {json.dumps(document, separators=(',', ':'), ensure_ascii=False)}")
    return ("\n".join(lines) + "\n\n").encode(errors="replace")


def beginning(event_id: str, retry_ms: int) -> bytes:
    """What comes first: where the tail begins, for a client that is cut off before the first message."""
    return f"retry: {retry_ms}\nid: {event_id}\n\n".encode()


def tail_id(refs: Iterable[MessageRef]) -> str:
    """Where a tail is: the last message of each partition."""
    return ",".join(str(ref) for ref in refs)


def parse_tail_id(text: str, what: str) -> Mapping[int, MessageRef]:
    """By partition; raises BodyError, whose text begins with ``what``."""
    if len(text) > ID_CHARACTERS_MAX:
        raise BodyError(f"{what} has more than {ID_CHARACTERS_MAX} characters")
    refs = [parse_message_id(one, what) for one in text.split(",")]
    return {ref.partition: ref for ref in refs}


def is_behind(ref: MessageRef, last: MessageRef) -> bool:
    """Whether a message comes after ``last``, of the same partition; an entry's id stands for all its messages."""
    if ref.position != last.position:
        return ref.position > last.position
    return last.batch_index >= 0 and ref.batch_index > last.batch_index
