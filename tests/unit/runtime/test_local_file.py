"""Local files: what is made is its user's alone, errors name their file, and what is read is bounded."""

from __future__ import annotations

import errno
import os

import pytest

from geminga.runtime.local_file import (
    LOCAL_FILE_BYTES_MAX,
    create_private,
    make_private_directories,
    named,
    naming,
    private,
    read_local_file,
    reason_at,
    remove_file,
    take_room,
)


def mode_of(path) -> int:
    return os.stat(path).st_mode & 0o777


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_what_is_made_is_the_users_alone(tmp_path, open_umask):
    make_private_directories(tmp_path / "a" / "b")
    make_private_directories(tmp_path / "a" / "b")
    assert [mode_of(tmp_path / name) for name in ("a", "a/b")] == [0o700, 0o700]
    with open(tmp_path / "f", "w", opener=private) as file:
        file.write("x")
    create_private(str(tmp_path / "g"))
    assert [mode_of(tmp_path / name) for name in ("f", "g")] == [0o600, 0o600]
    create_private(str(tmp_path / "f"))
    assert (tmp_path / "f").read_text() == "x"


def test_folder_where_a_file_is_can_not_be_made(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(FileExistsError):
        make_private_directories(tmp_path / "f")


def test_error_is_named_once():
    error = OSError(errno.EIO, "Input/output error")
    assert str(named(error, "/f")) == "[Errno 5] Input/output error: '/f'"
    assert named(error, "/g").filename == "/f"
    assert str(named(OSError("of no number"), "/f")) == "[Errno 5] of no number: '/f'"
    with pytest.raises(FileNotFoundError, match="/f"), naming("/f"):
        raise OSError(errno.ENOENT, "gone")
    with pytest.raises(OSError, match="of no number: '/f'"), naming("/f"):
        raise OSError("of no number")


def test_file_that_is_too_large_is_refused_with_its_name(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(bytes(LOCAL_FILE_BYTES_MAX))
    assert len(read_local_file(str(path))) == LOCAL_FILE_BYTES_MAX
    path.write_bytes(bytes(LOCAL_FILE_BYTES_MAX + 1))
    with pytest.raises(OSError, match="key: larger than"):
        read_local_file(str(path))


def test_sentence_about_a_directory_names_the_file_in_it():
    assert reason_at(OSError(errno.EIO, "Input/output error", "/d/f"), "/d") == "Input/output error: /d/f"
    assert reason_at(OSError(errno.EIO, "Input/output error", "/d"), "/d") == "Input/output error"
    assert reason_at(OSError(errno.EIO, "Input/output error"), "/d") == "Input/output error"
    assert reason_at(OSError("of no number"), "/d") == "of no number"


def test_room_that_is_taken_is_the_files_and_what_does_not_fit_leaves_it_as_it_was(tmp_path, monkeypatch, open_umask):
    path = str(tmp_path / "reserve")
    assert take_room(path, 100_000)
    assert os.stat(path).st_blocks * 512 >= 100_000
    assert mode_of(path) == 0o600

    def grow(fd: int, offset: int, size_bytes: int) -> None:
        os.pwrite(fd, b"x", offset + size_bytes - 1)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", grow)
    assert not take_room(path, 200_000)
    assert os.stat(path).st_size == 100_000
    monkeypatch.delattr(os, "posix_fallocate")
    assert take_room(path, 150_000)
    assert os.stat(path).st_blocks * 512 >= 150_000
    assert take_room(path, 1)
    assert os.stat(path).st_size == 150_000
    assert [remove_file(path), remove_file(path)] == [True, False]
    with pytest.raises(OSError, match="directory"):
        take_room(str(tmp_path), 1)
