"""Unix sockets by path: mode, what is left of earlier processes, long paths."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from geminga.runtime.sockets import local as local_sockets
from geminga.runtime.sockets.local import ADDRESS_BYTES_MAX, bound_local, remove_local, short_address


def test_bound_socket_is_the_users_alone_and_does_not_listen(tmp_path):
    path = str(tmp_path / "s")
    with bound_local(path), socket.socket(socket.AF_UNIX) as client:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with pytest.raises(ConnectionRefusedError):
            client.connect(path)
    remove_local(path)
    remove_local(path)
    assert not os.path.exists(path)


def test_left_socket_is_replaced_and_nothing_else_is(tmp_path):
    path = str(tmp_path / "s")
    bound_local(path).close()
    bound_local(path).close()
    os.unlink(path)
    os.symlink("/dev/null", path)
    with pytest.raises(FileExistsError, match="is no socket"):
        bound_local(path)
    assert os.path.islink(path)


@pytest.mark.parametrize("over", [0, 1, 300])
def test_path_of_any_length_becomes_an_address_that_fits(tmp_path, over):
    directory = str(tmp_path)
    wanted = ADDRESS_BYTES_MAX + over
    while len(directory) + 3 < wanted:
        directory += "/" + "d" * min(50, wanted - len(directory) - 3)
    os.makedirs(directory)
    path = f"{directory}/s"
    with short_address(path) as address:
        assert len(os.fsencode(address)) <= ADDRESS_BYTES_MAX
        assert (address == path) == (len(path) <= ADDRESS_BYTES_MAX)
    descriptors = len(os.listdir("/proc/self/fd"))
    bound_local(path).close()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_name_that_is_too_long_by_itself_is_refused_with_the_limit(tmp_path):
    with pytest.raises(OSError, match=f"name may have {ADDRESS_BYTES_MAX} bytes"):
        bound_local(f"{tmp_path}/{'n' * 120}")


def test_where_descriptors_are_not_shown_a_long_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(local_sockets, "_DESCRIPTORS", str(tmp_path / "none"))
    with pytest.raises(OSError, match=f"path may have {ADDRESS_BYTES_MAX} bytes here"):
        bound_local(f"{tmp_path}/{'d' * 60}/{'e' * 60}/s")


def test_missing_directory_is_told(tmp_path):
    with pytest.raises(FileNotFoundError):
        bound_local(str(tmp_path / "missing" / "s"))
