"""Whose a root is: the first cluster that writes there leaves its mark, another is refused. All calls block.

A mark names the cluster and its installation's id, which lies in its metadata (docs/formats/lake.md, Owner). Of two
first writers one wins: by a file that is only made if there is none, where the store has that, else by candidates.
Each writes one, looks whether it is alone, and then whether a mark came meanwhile: who looks second sees the other's
candidate, or the mark that came before that candidate went. That holds where what was written is listed at once.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from geminga.lake.store import LakeStore
from geminga.model.errors import CorruptionError, StorageError

#: Hidden from Spark by its first character.
DIRECTORY: Final = "_geminga"
OWNER_FILE: Final = f"{DIRECTORY}/owner.json"
_CANDIDATE: Final = "candidate-"
_VERSION: Final = 1


class Owner(NamedTuple):
    """A cluster."""

    cluster: str
    #: 32 hex digits, drawn once.
    installation: str


def claim(store: LakeStore, owner: Owner, now_ms: int) -> None:
    """Make sure that the root is the owner's; it is from now on. Raises StorageError, CorruptionError, OSError."""
    found = read_owner(store)
    if found is None:
        made = store.write_new(OWNER_FILE, _encode(owner, now_ms))
        found = _by_candidates(store, owner, now_ms) if made is None else read_owner(store)
    if found is None:
        raise StorageError(f"{store.root}/{OWNER_FILE} went while it was looked at")
    if found.installation != owner.installation:
        first_owner = f"cluster {found.cluster!r} ({found.installation})"
        raise StorageError(
            f"{store.root} is the lake of {first_owner}, not of {owner.cluster!r} ({owner.installation}): expected a "
            f"directory or prefix of its own. If that cluster is gone for good, delete {OWNER_FILE} there"
        )


def _by_candidates(store: LakeStore, owner: Owner, now_ms: int) -> Owner | None:
    mine = f"{_CANDIDATE}{owner.installation}.json"
    path, data = f"{DIRECTORY}/{mine}", _encode(owner, now_ms)
    store.write_bytes(path, data)
    others = [file.name for file in store.list(DIRECTORY) if file.name.startswith(_CANDIDATE) and file.name != mine]
    found = read_owner(store)
    if found is None and not others:
        store.write_bytes(OWNER_FILE, data)
        found = read_owner(store)
    # Behind the mark: until then it keeps others away.
    store.delete(path)
    if found is None and others:
        raise StorageError(
            f"{store.root}: another cluster is about to begin there ({DIRECTORY}/{others[0]}); it is looked at again "
            "later. If that cluster does not exist, delete that file"
        )
    return found


def read_owner(store: LakeStore) -> Owner | None:
    """Whose it is; None: nobody's. Raises CorruptionError, OSError."""
    try:
        data = store.read_bytes(OWNER_FILE)
    except FileNotFoundError:
        return None
    where = f"{store.root}/{OWNER_FILE}"
    try:
        document: dict[str, Any] = json.loads(data)
        if int(document["version"]) > _VERSION:
            raise CorruptionError(f"{where}: version {document['version']}, newer than {_VERSION}")
        return Owner(str(document["cluster"]), str(document["installation"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{where} is damaged: {error}") from error


def _encode(owner: Owner, now_ms: int) -> bytes:
    document = {"version": _VERSION, "cluster": owner.cluster, "installation": owner.installation, "writtenMs": now_ms}
    return json.dumps(document).encode()
