"""What is told of a file that can not be read."""

from __future__ import annotations

import errno

import pytest

from geminga.broker.authentication.files import _reason, where
from geminga.model.secret import Secret


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileNotFoundError("gone"), "there is no such file"),
        (OSError(errno.ENOENT, "No such file or directory"), "there is no such file"),
        (PermissionError(errno.EACCES, "Permission denied"), "this process may not read it (permission denied)"),
        (OSError(errno.EPERM, "Operation not permitted"), "this process may not read it (permission denied)"),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), "Is a directory"),
        (OSError("odd"), "OSError"),
    ],
)
def test_reason_is_one_that_an_operator_can_act_on(error: OSError, told: str) -> None:
    assert _reason(error) == told


def test_place_is_the_file_and_never_what_could_be_the_secret() -> None:
    assert where("file:///etc/public.key") == "/etc/public.key"
    assert where(Secret("/etc/pulsar/secret.key")) == "/etc/pulsar/secret.key"
    assert where(Secret("c2VjcmV0")) == "its value"
