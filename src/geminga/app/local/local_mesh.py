"""``geminga cluster up --clusters N``: clusters of processes beside each other in one directory, as a full mesh.

Each is a :class:`geminga.app.local.local_cluster.LocalCluster` in a folder that has its name. Which ones there are is
in ``clusters.json`` before any of them is started.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from geminga.app.local.core.local_cluster import MemberKind
from geminga.app.local.core.local_mesh import (
    Mesh,
    asked_of,
    check_again,
    check_settings,
    decode_mesh,
    encode_mesh,
    mesh_of,
)
from geminga.app.local.local_cluster import STATE_FILE as CLUSTER_FILE
from geminga.app.local.local_cluster import UNDO_S, LocalCluster, MemberStatus, locked, write_state
from geminga.app.local.mesh_registration import ClusterUrls, introduce, share_all
from geminga.model.errors import DataDirectoryError
from geminga.runtime.local_file import make_private_directories
from geminga.version import __version__

STATE_FILE: Final = "clusters.json"
LOCK_FILE: Final = "clusters.lock"
_ALLOWED_IN_NEW: Final = frozenset(("lost+found", LOCK_FILE, f"{STATE_FILE}.tmp"))


class ClusterStatus(NamedTuple):
    """What has become of one of them."""

    cluster: LocalCluster
    members: list[MemberStatus]


def urls_of(members: list[MemberStatus]) -> ClusterUrls:
    """Of all brokers that were started."""
    ports = [
        item.member.ports for item in members if item.kind is MemberKind.BROKER and item.member and item.member.ports
    ]
    return ClusterUrls(
        "http://" + ",".join(f"127.0.0.1:{port['web']}" for port in ports),
        "pulsar://" + ",".join(f"127.0.0.1:{port['broker']}" for port in ports),
    )


class LocalMesh:
    """The clusters in ``directory``; ``say`` gets a line for each step."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.directory = directory
        self._say = say

    def load(self) -> Mesh | None:
        """Which clusters there are; None: no mesh was made here. Raises DataDirectoryError for a damaged document."""
        path = self.directory / STATE_FILE
        try:
            return decode_mesh(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise DataDirectoryError(f"{path} is damaged: it is no text") from error

    def up(
        self, number: int | None, cluster: str | None, asked: Mapping[str, object], *, within_s: float
    ) -> list[ClusterStatus]:
        """Start what is missing of ``number`` clusters, whose names begin with ``cluster``; None: those that are there.

        Returns once all are ready and know each other. Raises GemingaError, OSError, KeyboardInterrupt: then everything
        that was started by this call has ended.
        """
        # Whatever is wrong already is told before anything is made.
        self._checked(number, cluster, asked)
        deadline = time.monotonic() + within_s
        make_private_directories(self.directory)
        with locked(self.directory, LOCK_FILE):
            mesh, of_each = self._checked(number, cluster, asked)
            self._save(mesh)
            found = []
            try:
                for made, wanted in of_each:
                    found.append(ClusterStatus(made, made.up(wanted, within_s=max(1.0, deadline - time.monotonic()))))
                self._register(mesh, found)
            except BaseException:
                for made, _ in reversed(of_each):
                    made.undo(within_s=UNDO_S)
                raise
        return found

    def _checked(
        self, number: int | None, cluster: str | None, asked: Mapping[str, object]
    ) -> tuple[Mesh, list[tuple[LocalCluster, dict[str, object]]]]:
        """Which clusters, and what is asked of each. Raises GemingaError for what can be known beforehand."""
        settings = asked.get("broker_settings")
        check_settings(settings if isinstance(settings, dict) else {})
        mesh = self.load()
        if mesh is not None:
            check_again(mesh, number, cluster, str(self.directory))
        else:
            self._refuse_foreign()
            mesh = mesh_of(number or 0, cluster, f"geminga {__version__}")
        of_each = []
        for index, (name, made) in enumerate(zip(mesh.names, self._clusters(mesh), strict=True)):
            wanted = asked_of(index, name, asked, is_new=made.load() is None)
            made.check(wanted)
            of_each.append((made, wanted))
        return mesh, of_each

    def _refuse_foreign(self) -> None:
        try:
            names = sorted(set(os.listdir(self.directory)) - _ALLOWED_IN_NEW)
        except FileNotFoundError:
            return
        if CLUSTER_FILE in names:
            raise DataDirectoryError(
                f"--clusters: {self.directory} is the directory of one cluster; expected a new or an empty one"
            )
        if names:
            raise DataDirectoryError(
                f"{self.directory} has no {STATE_FILE} and is not empty ({', '.join(names[:3])}): it belongs to "
                "something else; expected a new or an empty directory, or that of such clusters"
            )

    def _register(self, mesh: Mesh, found: list[ClusterStatus]) -> None:
        """Ports may be others than before. What lives where is said once: who changed it since meant it."""
        urls = {name: urls_of(one.members) for name, one in zip(mesh.names, found, strict=True)}
        for name, own in urls.items():
            introduce(own.service_url, name, {other: at for other, at in urls.items() if other != name})
        if not mesh.is_registered:
            share_all({name: own.service_url for name, own in urls.items()})
            self._save(replace(mesh, is_registered=True))
        self._say(f"{', '.join(mesh.names)} know each other")

    def status(self, mesh: Mesh) -> list[ClusterStatus]:
        """Of each cluster that was made; one that never was is left out."""
        found = []
        for made in self._clusters(mesh):
            state = made.load()
            if state is not None:
                found.append(ClusterStatus(made, made.status(state)))
        return found

    def down(self, mesh: Mesh, *, within_s: float, delete: bool) -> None:
        """Stop all of them; ``delete``: remove what they stored, as well. Raises GemingaError, OSError."""
        with locked(self.directory, LOCK_FILE):
            for made in reversed(self._clusters(mesh)):
                if made.load() is not None:
                    made.down(within_s=within_s, delete=delete)
            if delete:
                # Last: until then the same command goes on.
                for name in (STATE_FILE, f"{STATE_FILE}.tmp", LOCK_FILE):
                    (self.directory / name).unlink(missing_ok=True)
        if delete:
            try:
                self.directory.rmdir()
            except OSError:
                self._say(f"{self.directory} stays: there is something in it that is not the clusters'")

    def _clusters(self, mesh: Mesh) -> list[LocalCluster]:
        return [LocalCluster(self.directory / name, partial(self._say_of, name)) for name in mesh.names]

    def _say_of(self, name: str, text: str) -> None:
        self._say(f"{name}: {text}")

    def _save(self, mesh: Mesh) -> None:
        write_state(self.directory / STATE_FILE, encode_mesh(mesh))
