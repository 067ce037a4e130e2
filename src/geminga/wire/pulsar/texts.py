"""Lists and texts that a client chooses: how long they may be, beyond what a frame may. Pure.

A message is at most 5 MiB, which is a million properties, or names of clusters it is for. Every replicator of its
topic, every reader of it and every broker that reads its log again parses them and goes through them, in one turn of
the loop; names of producers are remembered for as long as a topic deduplicates. docs/formats/client-numbers.md has the
table. Entries that were stored by another broker, or an older one, are read whatever they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from geminga.wire._generated import pulsar_api_pb2 as pb

#: Items of a list of ``MessageMetadata``.
LISTS_MAX: Final = {"replicate_to": 1000, "encryption_keys": 1000, "properties": 1 << 16}
#: Bytes of all names of ``replicate_to`` together.
CLUSTERS_BYTES_MAX: Final = 64 << 10
#: Bytes of a producer's or consumer's name.
NAME_BYTES_MAX: Final = 4096
#: Bytes of a text of ``MessageMetadata`` that brokers keep; a message in parts has the producer's name and a number.
TEXTS_MAX: Final = {"producer_name": NAME_BYTES_MAX, "replicated_from": NAME_BYTES_MAX, "uuid": NAME_BYTES_MAX + 64}
#: Bytes of a subscription's name, which is that of a node: who loads a topic reads the names of all at once.
SUBSCRIPTION_BYTES_MAX: Final = 1024
#: Bytes of what a client says of itself (``metadata`` of PRODUCER and SUBSCRIBE), which is kept while it is there, and
#: of properties of a subscription or topic, which each change of its node writes again, and which leave no room there.
SAID_BYTES_MAX: Final = 128 << 10
#: Metadata of fewer bytes have no list and no text beyond its limit: an item takes two.
LOOKED_AT_BYTES: Final = 2 * min(LISTS_MAX.values())


def texts_refusal(metadata: pb.MessageMetadata, *, is_copier: bool = False) -> str:
    """Why a message with these metadata is refused; empty if it is not. ``is_copier``: its producer is a replicator,
    which adds a property."""
    for name, most in LISTS_MAX.items():
        count = len(getattr(metadata, name)) - (is_copier and name == "properties")
        if count > most:
            return f"{name} has {count} items, more than {most}"
    for name, most in TEXTS_MAX.items():
        size = _size(getattr(metadata, name))
        if size > most:
            return f"{name} has {size} bytes, more than {most}"
    size = sum(map(_size, metadata.replicate_to))
    return (
        "" if size <= CLUSTERS_BYTES_MAX else f"replicate_to has {size} bytes of names, more than {CLUSTERS_BYTES_MAX}"
    )


def said_refusal(what: str, name: str, said: Iterable[pb.KeyValue]) -> str:
    """Why a producer or consumer of this name, which says so of itself, is refused; empty if it is not.

    ``what``: the name's field.
    """
    size = _size(name)
    if size > NAME_BYTES_MAX:
        return f"{what} has {size} bytes, more than {NAME_BYTES_MAX}"
    size = sum(_size(pair.key) + _size(pair.value) for pair in said)
    return "" if size <= SAID_BYTES_MAX else f"metadata has {size} bytes, more than {SAID_BYTES_MAX}"


def subscription_refusal(name: str, properties: Mapping[str, str]) -> str:
    """Why no subscription of this name, with these properties, is made; empty if it may be."""
    size = _size(name)
    if size > SUBSCRIPTION_BYTES_MAX:
        return f"a subscription's name has at most {SUBSCRIPTION_BYTES_MAX} bytes, not {size}"
    return properties_refusal("a subscription", properties)


def properties_refusal(whose: str, properties: Mapping[str, str]) -> str:
    """Why a topic or subscription does not get these properties; empty if it does."""
    size = sum(_size(key) + _size(value) for key, value in properties.items())
    return "" if size <= SAID_BYTES_MAX else f"{whose}'s properties have at most {SAID_BYTES_MAX} bytes, not {size}"


def _size(text: str | bytes) -> int:
    """Of one that is no UTF-8 the generated class gives the bytes."""
    return len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
