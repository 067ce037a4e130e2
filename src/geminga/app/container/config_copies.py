"""Files of configuration in a container: changed in place, or as a copy where the root file system is read-only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.app.container.core.environment_keys import apply_environment
from geminga.app.container.core.file_layers import COPY_DIRECTORIES, HOME, copy_places, is_current, start_place
from geminga.app.container.core.words import below
from geminga.model.errors import ConfigurationError

#: Read at a time.
_PART_BYTES: Final = 1024 * 1024


class Image(NamedTuple):
    """Where the files of the image are in the container that runs."""

    #: Of everything: PULSAR_HOME.
    home: str
    #: Directories for copies: PULSAR_COPY_DIR, or :data:`COPY_DIRECTORIES`.
    copies: tuple[str, ...]
    #: Tells this start of the container from every other; empty: it can not be told.
    start: str


def image_of(environment: Mapping[str, str]) -> Image:
    """The one that this process runs in."""
    own = environment.get("PULSAR_COPY_DIR")
    return Image(environment.get("PULSAR_HOME") or HOME, (own,) if own else COPY_DIRECTORIES, container_start())


def config_file(image: Image, path: str) -> str:
    """Where the file ``path`` is read: its copy of this start, or itself."""
    absolute = below(image.home, path)
    for place in copy_places(image.home, absolute, image.copies):
        if _is_current(image, place):
            return place
    return absolute


def apply_to_file(image: Image, path: str, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Put what ``environment`` says into the file; where that was written, and what. Raises ConfigurationError."""
    absolute = below(image.home, path)
    source = config_file(image, path)
    try:
        with open(source, encoding="utf-8") as file:
            applied = apply_environment(file.read(), environment)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{source}: {getattr(error, 'strerror', None) or error}") from error
    refused = ""
    for place in [absolute, *copy_places(image.home, absolute, image.copies)] if source == absolute else [source]:
        try:
            if place == absolute:
                _write(place, applied.text)
            else:
                _write_copy(image, place, applied.text)
        except OSError as error:
            refused = refused or f"{place}: {error.strerror}"
        else:
            return place, applied.done
    raise ConfigurationError(
        f"{refused}; nor can a copy be written: expected a writable {os.path.dirname(absolute)}, a tmpfs on /run or "
        f"/tmp, or a volume on {below(image.home, 'data')}"
    )


def remember(image: Image, name: str, text: str) -> None:
    """Keep ``text`` for other programs of this container; where nothing can be written it is lost."""
    for place in copy_places(image.home, name, image.copies):
        try:
            _write_copy(image, place, text)
        except OSError:
            continue
        return


def remembered(image: Image, name: str) -> str | None:
    """What a program of this container kept, or None."""
    for place in copy_places(image.home, name, image.copies):
        if _is_current(image, place):
            try:
                with open(place, encoding="utf-8") as file:
                    return file.read()
            except OSError:
                continue
    return None


def container_start() -> str:
    """When the container's first process started, by the kernel's count and in which boot; empty: unknown."""
    try:
        with open("/proc/1/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii", errors="replace") as file:
            return f"{file.read().strip()} {ticks}"
    except OSError:
        return str(ticks)


def _is_current(image: Image, place: str) -> bool:
    try:
        with open(start_place(place), encoding="utf-8", errors="replace") as file:
            return os.path.exists(place) and is_current(file.read(), image.start)
    except OSError:
        return False


def _write_copy(image: Image, place: str, text: str) -> None:
    """What is there of an earlier start does not count before this one is whole."""
    _write(place, text)
    _write(start_place(place), image.start)


def _write(path: str, text: str) -> None:
    """In place: the file's directory need not be writable, and a mounted file can not be replaced. Raises OSError.

    Where there is no room for all of it the file is as it was: a server that starts on half of one would not ask who
    clients are if that stood in the other half.
    """
    data = text.encode()
    try:
        fd, is_new = os.open(path, os.O_RDWR | os.O_CLOEXEC), False
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd, is_new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), True
    try:
        before = _read_all(fd)
        try:
            _overwrite(fd, data)
        except OSError:
            if is_new:
                os.unlink(path)
            else:
                _overwrite(fd, before)
            raise
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    parts, offset = [], 0
    while part := os.pread(fd, _PART_BYTES, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def _overwrite(fd: int, data: bytes) -> None:
    """Not cut before it is written: what had room has it still if this fails."""
    offset = 0
    while offset < len(data):
        offset += os.pwrite(fd, data[offset:], offset)
    os.ftruncate(fd, len(data))
    os.fsync(fd)
