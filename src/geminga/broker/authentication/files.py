"""Bytes that configuration keys name: read at the start, where every error is one sentence, and looked at again.

A file that was changed into something that can not be used changes nothing: what was read before holds, and the log
says why once.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final

from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret
from geminga.runtime import Disk
from geminga.security.key_text import place_of, shown

#: Bytes of a file.
FILE_BYTES_MAX: Final = 4 << 20

Text = str | Secret


async def read_all(disk: Disk, texts: Mapping[str, Text]) -> dict[str, bytes]:
    """Configuration key -> the bytes that its value names. Raises ConfigurationError."""
    return {key: await read_named(disk, key, text) for key, text in texts.items()}


async def read_named(disk: Disk, key: str, text: Text) -> bytes:
    """What the value ``text`` of ``key`` names. Raises ConfigurationError with key, file and what is wrong."""
    try:
        place = place_of(_open(text))
    except ValueError as error:
        raise ConfigurationError(f"{key}: {error}") from None
    if not place.path:
        assert place.data is not None
        return place.data
    try:
        size = await disk.file_size(place.path)
        if size > FILE_BYTES_MAX:
            raise ConfigurationError(f"{key}: {where(text)} has {size} bytes; at most {FILE_BYTES_MAX} are read")
        if not size:  # so are devices and pipes, of which nobody knows where they end
            raise ConfigurationError(f"{key}: {where(text)} is empty, or no ordinary file")
        return await disk.read_file(place.path)
    except OSError as error:
        if place.data is not None:  # no file, but base64
            return place.data
        named = where(text)
        also = ", which is no base64 either" if named == shown("") else ""
        raise ConfigurationError(f"{key}: {named}{also}: {_reason(error)}") from None
    except ValueError:  # a zero byte, which no path has
        raise ConfigurationError(f"{key}: not the path of a file") from None


def where(text: Text) -> str:
    """The file that a value names, for sentences, if it can be told; else that it is the value."""
    return shown(_open(text))


def _open(text: Text) -> str:
    return text.reveal() if isinstance(text, Secret) else text


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT or isinstance(error, FileNotFoundError):
        return "there is no such file"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this process may not read it (permission denied)"
    return error.strerror or type(error).__name__
