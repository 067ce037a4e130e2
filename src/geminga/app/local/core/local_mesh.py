"""Several clusters of processes on one machine that copy to each other: their names, ports and document. Pure.

The document and its rules: ``docs/formats/local-cluster.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from geminga.app.local.core.local_cluster import CLUSTER_NAME_DEFAULT, Plan
from geminga.model.errors import ConfigurationError, DataDirectoryError
from geminga.model.topic_name import is_valid_named_entity

FORMAT: Final = 1
CLUSTERS_MIN, CLUSTERS_MAX = 2, 8
#: Between the ports of two clusters.
PORTS_STEP: Final = 10
#: Settings of brokers with which nobody may register the clusters without credentials, which this command has not.
SECURED_KEYS: Final = ("authenticationEnabled", "authorizationEnabled")


@dataclass(frozen=True, slots=True)
class Mesh:
    """The document of ``clusters.json``."""

    #: Of the clusters, which are also those of their directories.
    names: tuple[str, ...]
    #: Whether each knew the others once, and their default namespace lived in all. What was changed since stays.
    is_registered: bool = False
    created_by: str = ""


def mesh_of(number: int, cluster: str | None, created_by: str) -> Mesh:
    """``cluster``: what their names begin with. Raises ConfigurationError."""
    if not CLUSTERS_MIN <= number <= CLUSTERS_MAX:
        raise ConfigurationError(
            f"--clusters {number}: expected a whole number from {CLUSTERS_MIN} to {CLUSTERS_MAX}; one cluster is what "
            "up starts without it"
        )
    prefix = CLUSTER_NAME_DEFAULT if cluster is None else cluster
    if not _is_folder(prefix):
        raise ConfigurationError(
            f"--cluster {prefix!r}: with --clusters expected letters, digits and -=:_., a letter or digit first: each "
            "cluster's folder is called so, with a number"
        )
    return Mesh(tuple(f"{prefix}-{index + 1}" for index in range(number)), created_by=created_by)


def check_again(mesh: Mesh, number: int | None, cluster: str | None, path: str) -> None:
    """What was asked for of a mesh that is there. Raises ConfigurationError."""
    if number is not None and number != len(mesh.names):
        raise ConfigurationError(
            f"--clusters {number}: {path} has {len(mesh.names)} ({', '.join(mesh.names)}), and keeps them"
        )
    if cluster is not None and mesh_of(len(mesh.names), cluster, "").names != mesh.names:
        raise ConfigurationError(f"--cluster {cluster}: these clusters are called {', '.join(mesh.names)}, and stay so")


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise ConfigurationError for brokers that would not let this command register the clusters."""
    secured = [key for key in SECURED_KEYS if settings.get(key, "").strip().lower() == "true"]
    if secured:
        raise ConfigurationError(
            f"--set {secured[0]}=true: with --clusters the clusters are registered with each other without "
            "credentials; expected one of the two"
        )


def asked_of(index: int, name: str, asked: Mapping[str, object], *, is_new: bool) -> dict[str, object]:
    """What is asked of the cluster with this index, of what is ``asked`` of all (fields of ``Plan``; None: nothing).

    Ports that are numbers are those of the first cluster; each other has them :data:`PORTS_STEP` higher.
    """
    found = {**asked, "cluster": name}
    for key in ("broker_port", "web_port", "zookeeper_port"):
        port = asked.get(key)
        if port is None and is_new:
            port = getattr(Plan(), key)
        if isinstance(port, int) and port > 0:
            port += index * PORTS_STEP
        found[key] = port
    return found


def encode_mesh(mesh: Mesh) -> str:
    """The text of ``clusters.json``."""
    document = {
        "format": FORMAT,
        "createdBy": mesh.created_by,
        "clusters": list(mesh.names),
        "isRegistered": mesh.is_registered,
    }
    return json.dumps(document, indent=1) + "\n"


def decode_mesh(text: str, path: str) -> Mesh:
    """What ``path`` holds; raises DataDirectoryError for what :func:`encode_mesh` does not write."""
    try:
        document = json.loads(text)
        number = document["format"]
        if type(number) is int and number > FORMAT:
            raise DataDirectoryError(
                f"{path} has format {number}, and this program knows formats up to {FORMAT}: use a newer Geminga"
            )
        names, is_registered, created_by = document["clusters"], document["isRegistered"], document["createdBy"]
        if type(number) is not int or number != FORMAT:
            raise ValueError(f"format {number!r}")
        if not isinstance(names, list) or not all(isinstance(name, str) and _is_folder(name) for name in names):
            raise ValueError(f"clusters {names!r}")
        if not CLUSTERS_MIN <= len(set(names)) == len(names) <= CLUSTERS_MAX:
            raise ValueError(f"clusters {names!r}")
        if not isinstance(is_registered, bool) or not isinstance(created_by, str):
            raise ValueError("isRegistered or createdBy")
        return Mesh(tuple(names), is_registered, created_by)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataDirectoryError(
            f"{path} is damaged ({str(error) or type(error).__name__}): which clusters are here is not known"
        ) from error


def _is_folder(name: str) -> bool:
    """Whether a cluster's name may be that of a folder."""
    return name.isascii() and is_valid_named_entity(name) and name[:1].isalnum()
