"""A directory and a bucket keep what they are given, whole or not at all."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from geminga.lake.bucket_store import BucketStore
from geminga.lake.core.roots import bucket_root, directory_root, driver_named
from geminga.lake.directory_store import DirectoryStore
from geminga.lake.store import StoredFile
from geminga.lake.stores import open_store
from geminga.model.errors import ConfigurationError
from support.processes.s3_server import S3Server

pytestmark = pytest.mark.integration

TOPIC = "t/n/persistent/a%20b+%2E"


@pytest.fixture
def s3(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with S3Server() as server:
        yield server


@pytest.fixture(params=["directory", "bucket"])
def store(request, tmp_path):
    if request.param == "directory":
        return DirectoryStore(str(tmp_path))
    return BucketStore("lake", "some/prefix", endpoint=request.getfixturevalue("s3").endpoint)


def test_files_are_written_read_listed_and_deleted(store):
    data = os.urandom(12 << 20)  # in parts
    with store.write(f"{TOPIC}/f.parquet") as output:
        output.write(data[:100])
        output.write(data[100:])
    store.write_bytes(f"{TOPIC}/_manifest/m.json", b"{}")
    assert store.list(TOPIC) == [StoredFile("f.parquet", len(data))]
    assert store.list(f"{TOPIC}/_manifest") == [StoredFile("m.json", 2)]
    assert store.list("nowhere") == []
    assert store.size_bytes(f"{TOPIC}/f.parquet") == len(data)
    with store.read(f"{TOPIC}/f.parquet") as source:
        source.seek(1 << 20)
        assert source.read(1000) == data[1 << 20 : (1 << 20) + 1000]
    assert store.read_bytes(f"{TOPIC}/_manifest/m.json") == b"{}"
    store.write_bytes(f"{TOPIC}/_manifest/m.json", b"[]")
    assert store.read_bytes(f"{TOPIC}/_manifest/m.json") == b"[]"
    for path in ("f.parquet", "f.parquet", "_manifest/m.json"):
        store.delete(f"{TOPIC}/{path}")
    store.remove_directory(f"{TOPIC}/_manifest")
    assert store.list(TOPIC) == []


def test_a_new_file_replaces_none_and_a_bucket_can_not_tell(store):
    is_directory = isinstance(store, DirectoryStore)
    assert store.write_new("_geminga/f", b"one") is (True if is_directory else None)
    assert store.write_new("_geminga/f", b"two") is (False if is_directory else None)
    assert store.list("_geminga") == ([StoredFile("f", 3)] if is_directory else [])
    if is_directory:
        assert store.read_bytes("_geminga/f") == b"one"


def test_a_write_that_fails_leaves_no_file(store):
    with pytest.raises(OSError, match="no more"), store.write(f"{TOPIC}/f") as output:
        output.write(b"half")
        raise OSError(errno.ENOSPC, "no more")
    assert store.list(TOPIC) == []


class RefusingServer(S3Server):
    """Takes so many calls that write."""

    left = 1 << 30

    def fails(self, method: str) -> int:
        if method in ("PUT", "POST"):
            self.left -= 1
        return 403 if self.left < 0 and method in ("PUT", "POST") else super().fails(method)


@pytest.mark.parametrize("size", [10, 4 << 20])
def test_what_a_bucket_has_stays_where_it_can_not_be_written_over(monkeypatch, size):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    old, new = b"old" * size, b"new" * size
    with RefusingServer() as refusing:
        store = BucketStore("lake", "", endpoint=refusing.endpoint)
        store.write_bytes("t/manifest", old)
        refused = 0
        while refusing.objects["lake/t/manifest"] == old:
            refusing.left = refused
            try:
                store.write_bytes("t/manifest", new)
            except OSError:
                assert refusing.objects["lake/t/manifest"] == old
                refused += 1
        assert refused >= 1
        assert refusing.objects["lake/t/manifest"] == new
        refusing.left = 1 << 30
        store.write_bytes("t/manifest", old)
        assert [name for name in refusing.objects if name.endswith("manifest.new")] == []


def test_missing_files_are_told_apart_from_errors(store):
    with pytest.raises(FileNotFoundError):
        store.read(f"{TOPIC}/f")
    with pytest.raises(FileNotFoundError):
        store.size_bytes(f"{TOPIC}/f")


@pytest.mark.parametrize("status", [403, 500])
def test_an_error_of_the_bucket_is_no_missing_file(s3, status):
    store = BucketStore("lake", "", endpoint=s3.endpoint)
    store.write_bytes("t/f", b"x")
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        s3.failing[method] = (status, -1)
    for call in (
        lambda: store.read_bytes("t/f"),
        lambda: store.size_bytes("t/f"),
        lambda: store.list("t"),
        lambda: store.delete("t/f"),
        lambda: store.write_bytes("t/g", b""),
    ):
        with pytest.raises(OSError, match=r"AWS Error|ACCESS_DENIED|HTTP") as caught:
            call()
        assert not isinstance(caught.value, FileNotFoundError)


class HangingServer(S3Server):
    """Takes a part of an upload when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked, self.goes_on = threading.Event(), threading.Event()

    def fails(self, method: str) -> int:
        if method == "PUT":
            self.is_asked.set()
            assert self.goes_on.wait(60)
        return super().fails(method)


def test_what_a_bucket_that_hangs_does_not_take_stays_with_who_writes(monkeypatch):
    written = []
    with HangingServer() as hanging:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        store = BucketStore("lake", "", endpoint=hanging.endpoint)

        def write() -> None:
            with store.write("t/f") as output:
                for _ in range(64):
                    output.write(bytes(1 << 20))
                    written.append(1)

        writer = threading.Thread(target=write)
        writer.start()
        assert hanging.is_asked.wait(60)
        writer.join(0.5)
        held = len(written)
        hanging.goes_on.set()
        writer.join(60)
        assert held <= 16
        assert len(hanging.objects["lake/t/f"]) == 64 << 20


def test_a_directory_that_is_not_mounted_is_an_error_and_no_empty_lake(tmp_path):
    store = DirectoryStore(str(tmp_path / "mnt"))
    for call in (lambda: store.list("t"), lambda: store.write_bytes("t/f", b""), lambda: store.delete("t/f")):
        with pytest.raises(NotADirectoryError, match="mounted"):
            call()
    with pytest.raises(NotADirectoryError):
        store.read("t/f")
    assert not (tmp_path / "mnt").exists()


@pytest.mark.parametrize(("root_mode", "directory_mode", "file_mode"), [(0o700, 0o700, 0o600), (0o755, 0o755, 0o644)])
def test_files_are_for_those_who_may_read_the_directory(tmp_path, root_mode, directory_mode, file_mode):
    tmp_path.chmod(root_mode)
    before = os.umask(0o022)
    try:
        store = DirectoryStore(str(tmp_path))
        store.write_bytes("a/b/replaced", b"x")
        assert store.write_new("a/b/new", b"x")
        assert not store.write_new("a/b/new", b"y")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [directory_mode] * 2
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "a" / "b").iterdir()} == {
        "replaced": file_mode,
        "new": file_mode,
    }


def test_error_of_the_disk_names_the_file(tmp_path, monkeypatch):
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = DirectoryStore(str(tmp_path))
    monkeypatch.setattr(os, "fsync", failing)
    for write in (store.write_bytes, store.write_new):
        with pytest.raises(OSError, match=r"Input/output error: '/.*'"):
            write("f", b"x")


def test_drivers_and_roots_are_named_as_pulsars_or_refused():
    assert driver_named("FileSystem") == "filesystem"
    assert driver_named("AWS-S3") == "aws-s3"
    for name in ("google-cloud-storage", "azureblob", "aliyun-oss", "tape"):
        with pytest.raises(ConfigurationError, match=name):
            driver_named(name)
    assert directory_root("file:///a%20b/") == "file:///a b"
    assert bucket_root("b", "/p/q/") == "s3://b/p/q"
    for uri in ("hdfs://x/y", "relative", "file://host/x"):
        with pytest.raises(ConfigurationError, match="fileSystemURI"):
            directory_root(uri)
    for bucket in ("", "a/b"):
        with pytest.raises(ConfigurationError, match="bucket"):
            bucket_root(bucket, "")
    with pytest.raises(ConfigurationError):
        open_store("filesystem", {})


def test_a_file_that_can_not_be_looked_at_is_not_called_missing(tmp_path):
    """A missing one may be given up by command; one behind a permission, a broken disk or a circle of links may not."""
    store = DirectoryStore(str(tmp_path))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "circle").symlink_to(tmp_path / "t" / "circle")
    with pytest.raises(OSError, match="symbolic links") as failure:
        store.read("t/circle")
    assert not isinstance(failure.value, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        store.read("t/none")
