"""Several clusters in one directory: what stands in the way is told before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga.app.local.core.local_mesh import Mesh, encode_mesh
from geminga.app.local.local_mesh import LOCK_FILE, LocalMesh
from geminga.app.local.mesh_registration import ClusterUrls, introduce
from geminga.model.errors import ConfigurationError, DataDirectoryError, UnavailableError


def nothing(_text: str) -> None:
    """Said to nobody."""


def test_the_directory_of_one_cluster_or_of_something_else_is_refused(tmp_path: Path) -> None:
    mesh = LocalMesh(tmp_path, nothing)
    (tmp_path / "letters").touch()
    with pytest.raises(DataDirectoryError, match=r"has no clusters.json and is not empty \(letters\)"):
        mesh.up(2, None, {}, within_s=1)
    (tmp_path / "cluster.json").touch()
    with pytest.raises(DataDirectoryError, match="is the directory of one cluster"):
        mesh.up(2, None, {}, within_s=1)
    assert not (tmp_path / LOCK_FILE).exists()


def test_another_number_is_refused_and_a_damaged_document_told(tmp_path: Path) -> None:
    mesh = LocalMesh(tmp_path, nothing)
    assert mesh.load() is None
    (tmp_path / "clusters.json").write_text(encode_mesh(Mesh(("east-1", "east-2"))))
    with pytest.raises(ConfigurationError, match="has 2"):
        mesh.up(3, None, {}, within_s=1)
    assert mesh.status(Mesh(("east-1", "east-2"))) == []
    (tmp_path / "clusters.json").write_bytes(b"\xff")
    with pytest.raises(DataDirectoryError, match="it is no text"):
        mesh.load()


def test_what_is_wrong_with_one_cluster_is_told_before_another_starts(tmp_path: Path) -> None:
    """The second's port would be 65,540."""
    said: list[str] = []
    with pytest.raises(ConfigurationError, match="--broker-port 65540: expected a whole number from 0 to 65535"):
        LocalMesh(tmp_path / "new", said.append).up(2, None, {"broker_port": 65530, "web_port": 0}, within_s=1)
    assert said == []
    assert not (tmp_path / "new").exists()


def test_down_removes_what_was_begun_and_nothing_else(tmp_path: Path) -> None:
    said: list[str] = []
    mesh, document = LocalMesh(tmp_path / "all", said.append), Mesh(("east-1", "east-2"))
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "clusters.json").write_text(encode_mesh(document))
    (tmp_path / "all" / "mine.txt").touch()
    mesh.down(document, within_s=1, delete=True)
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["mine.txt"]
    assert said == [f"{tmp_path}/all stays: there is something in it that is not the clusters'"]


def test_a_cluster_that_does_not_answer_is_named() -> None:
    urls = {"west": ClusterUrls("http://127.0.0.1:1", "pulsar://127.0.0.1:1")}
    with pytest.raises(UnavailableError, match=r"http://127.0.0.1:1 does not answer PUT /admin/v2/clusters/west: "):
        introduce("http://127.0.0.1:1", "east", urls)
