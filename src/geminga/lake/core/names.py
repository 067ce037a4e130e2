"""Where the files of a topic lie below the root. Pure.

Names are encoded as in URLs, not as in the metadata: files lie where they always did. No two topics have one directory:
such names have neither ``+`` nor ``%2E`` and ``%5F``, which stand for a cut name and a leading ``.`` or ``_`` here.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

from geminga.model.topic_name import TopicName

#: Longer encoded names of topics are cut: file systems take 255 bytes.
NAME_CHARACTERS_MAX: Final = 200
_KEPT_CHARACTERS: Final = 160
_HASH_DIGITS: Final = 32
#: Hidden from Spark by its first character.
MANIFESTS: Final = "_manifest"
#: Of a file that is being written.
TEMPORARY_PREFIX: Final = "."
TEMPORARY_SUFFIX: Final = ".tmp"
_LEDGER: Final = "ledger-"
_PARQUET: Final = ".parquet"
_JSON: Final = ".json"
_LEDGER_DIGITS: Final = 19
_UID_DIGITS: Final = 32
_NUMBER_DIGITS: Final = 16
_HEX: Final = frozenset("0123456789abcdef")


class LedgerFile(NamedTuple):
    """What the name of a ledger's file says."""

    ledger_id: int
    uid: str


class ManifestName(NamedTuple):
    """What the name of a manifest says; the greatest counts."""

    created_ms: int
    list_version: int


def topic_directory(managed_ledger_name: str) -> str:
    """The directory of a topic, by ``tenant/namespace/persistent/encoded-name``."""
    *above, encoded = managed_ledger_name.split("/", 3)
    return "/".join(map(_element, (*above, encoded.replace("+", "%20").replace("%7E", "~"))))


def directory_of(topic: TopicName) -> str:
    """The directory of a topic; each partition has one of its own."""
    return topic_directory(topic.managed_ledger_name)


def _element(encoded: str) -> str:
    if len(encoded) > NAME_CHARACTERS_MAX:
        encoded = f"{encoded[:_KEPT_CHARACTERS]}+{sha256(encoded.encode()).hexdigest()[:_HASH_DIGITS]}"
    if encoded[:1] == ".":
        return f"%2E{encoded[1:]}"
    return f"%5F{encoded[1:]}" if encoded[:1] == "_" else encoded


def ledger_file(ledger_id: int, uid: str) -> str:
    """The name of a ledger's file in its topic's directory."""
    return f"{_LEDGER}{ledger_id:0{_LEDGER_DIGITS}d}-{uid}{_PARQUET}"


def parse_ledger_file(name: str) -> LedgerFile | None:
    """The inverse, also of a file that is being written; None: it is no such name."""
    if name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX):
        name = name[len(TEMPORARY_PREFIX) : -len(TEMPORARY_SUFFIX)]
    if not name.startswith(_LEDGER) or not name.endswith(_PARQUET):
        return None
    digits, _, uid = name[len(_LEDGER) : -len(_PARQUET)].partition("-")
    if len(digits) != _LEDGER_DIGITS or not digits.isdigit() or not digits.isascii():
        return None
    return LedgerFile(int(digits), uid) if len(uid) == _UID_DIGITS and _HEX.issuperset(uid) else None


def manifest_file(name: ManifestName) -> str:
    """The name of a manifest in the topic's ``_manifest``."""
    return f"{name.created_ms:0{_NUMBER_DIGITS}d}-{name.list_version:0{_NUMBER_DIGITS}d}{_JSON}"


def parse_manifest_file(name: str) -> ManifestName | None:
    """The inverse; None: it is no such name."""
    if not name.endswith(_JSON):
        return None
    created, _, version = name[: -len(_JSON)].partition("-")
    if any(len(each) != _NUMBER_DIGITS or not each.isdigit() or not each.isascii() for each in (created, version)):
        return None
    return ManifestName(int(created), int(version))
