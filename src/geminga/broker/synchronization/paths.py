"""Which paths, and which values, one cluster takes from another: pure.

Whoever may publish the events administers all clusters; what is refused here is what no administrator could have
stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document
from geminga.broker.resources.clusters import CLUSTERS_PATH
from geminga.broker.resources.configuration_paths import ConfigurationPaths
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.broker.resources.partitioned_topics import PARTITIONED_TOPICS_PATH
from geminga.broker.resources.policies import Policies
from geminga.broker.resources.resource_groups import GROUPS_PATH
from geminga.broker.resources.tenants import POLICIES_PATH
from geminga.broker.synchronization.core.records import NOTHING
from geminga.model.limits import PARTITIONS_MAX

#: The number of a cluster's transaction coordinators, which it makes when it starts: its own alone.
COORDINATORS_PATH: Final = f"{PARTITIONED_TOPICS_PATH}/{COORDINATORS_TOPIC.managed_ledger_name}"
#: Of a value, bytes: a request with it is below what a store takes (ZooKeeper's ``jute.maxbuffer``).
VALUE_BYTES_MAX: Final = 1_000_000
#: Of a path.
PATH_CHARACTERS_MAX: Final = 1024
PATH_PARTS_MAX: Final = 8
#: What ZooKeeper takes in no path.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_DOTS: Final = ("", ".", "..")
#: How many parts paths of documents have, by root: a tenant, a namespace; a cluster, its isolation policies, one of its
#: failure domains; namespace, domain and topic; a group.
_PARTS: Final = {
    POLICIES_PATH: (3, 4),
    CLUSTERS_PATH: (3, 5),
    PARTITIONED_TOPICS_PATH: (6, 6),
    GROUPS_PATH: (3, 3),
}
#: Of a namespace's policies: each cluster cuts it into bundles by itself, and tells its cuts here, too.
_BUNDLES: Final = "bundles"


class Partitioned(NamedTuple):
    """The place of a partitioned topic's number of partitions."""

    namespace: str
    domain: str
    encoded: str


def is_kept_alike(path: str) -> bool:
    """Whether clusters keep such a node alike, or some below it."""
    return path != COORDINATORS_PATH and ConfigurationPaths().is_shared(path)


def problem_of_path(path: str, is_shared: Callable[[str], bool]) -> str:
    """Why nothing is taken for a path; empty: it is. ``is_shared``: whether clusters may share such a node."""
    if len(path) > PATH_CHARACTERS_MAX:
        return f"its path has more than {PATH_CHARACTERS_MAX} characters"
    parts = path.split("/")[1:]
    if not path.startswith("/") or any(part in _DOTS for part in parts) or _FORBIDDEN.search(path):
        return "its path is none"
    if len(parts) > PATH_PARTS_MAX:
        return f"its path has more than {PATH_PARTS_MAX} parts"
    if path == COORDINATORS_PATH:
        return "how many transaction coordinators it has is each cluster's own"
    least, most = _PARTS.get("/".join(["", *parts[:2]]), (1, 0))
    # What holds others has no value of its own, and what is a document holds none: it could not be deleted.
    if not least <= len(parts) <= most or not is_shared(path):
        return "its path is none of what clusters may share: tenants, namespaces, clusters, numbers of partitions"
    return ""


def problem_of_value(path: str, value: bytes | None) -> str:
    """Why a value is not taken for a path; empty: it is."""
    if value is None:
        return ""
    if len(value) > VALUE_BYTES_MAX:
        return f"its value has {len(value)} bytes, more than {VALUE_BYTES_MAX}"
    document = document_in(value)
    if document is None:
        return "its value is no JSON object"
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "its value has half a character"
    if partitioned_at(path) is not None and partitions_in(value) > PARTITIONS_MAX:
        return f"it has more than {PARTITIONS_MAX} partitions"
    return ""


def document_in(value: bytes) -> Document | None:
    """The JSON object that a value is; None: it is none."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def digest_at(path: str, value: bytes | None) -> str:
    """Of what is kept alike of a value, however its JSON is written; a node that is empty, or not there, has none."""
    if not value:
        return NOTHING
    document = document_in(value)
    if document is None:
        return sha256(value).hexdigest()
    if namespace_at(path):
        document.pop(_BUNDLES, None)
    return sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def value_for(path: str, stored: bytes | None, value: bytes) -> bytes:
    """Another cluster's value as it is stored here: what is each cluster's own in it stays as it is."""
    old, new = document_in(stored) if stored else None, document_in(value)
    if not namespace_at(path) or old is None or new is None:
        return value
    if _BUNDLES in old:
        new[_BUNDLES] = old[_BUNDLES]
    else:
        new.pop(_BUNDLES, None)
    return json.dumps(new, separators=(",", ":"), ensure_ascii=False).encode()


def is_being_deleted(value: bytes | None) -> bool:
    """Whether a value says that a deletion began: the end of that is what others hear of."""
    document = document_in(value) if value else None
    return document is not None and document.get("deleted") is True


def namespace_at(path: str) -> str:
    """The namespace whose policies a path has; empty: none."""
    parts = path.removeprefix(f"{POLICIES_PATH}/").split("/")
    return "/".join(parts) if path.startswith(f"{POLICIES_PATH}/") and len(parts) == 2 else ""


def partitioned_at(path: str) -> Partitioned | None:
    """The partitioned topic that a path is of; None: none."""
    parts = path.removeprefix(f"{PARTITIONED_TOPICS_PATH}/").split("/")
    if not path.startswith(f"{PARTITIONED_TOPICS_PATH}/") or len(parts) != 4:
        return None
    return Partitioned("/".join(parts[:2]), parts[2], parts[3])


def cluster_at(path: str) -> str:
    """The cluster whose data a path has; empty: none."""
    name = path.removeprefix(f"{CLUSTERS_PATH}/")
    return name if path.startswith(f"{CLUSTERS_PATH}/") and "/" not in name else ""


def partitions_in(value: bytes | None) -> int:
    """The number of partitions that a value says; 0: none."""
    document = document_in(value) if value else None
    count = None if document is None else document.get("partitions")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def takes_out(cluster: str, before: bytes | None, after: bytes | None) -> bool:
    """Whether policies of a namespace that lives in ``cluster`` are exchanged for ones by which it does not."""
    old, new = (document_in(value) if value else None for value in (before, after))
    if old is None or new is None:
        return False
    return Policies(old).lives_in(cluster) and not Policies(new).lives_in(cluster)
