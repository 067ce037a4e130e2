"""Files of configuration in a container: changed in place, or as a copy where the root file system is read-only."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from geminga.app.container.core.environment_keys import apply_environment
from geminga.app.container.core.file_layers import COPY_DIRECTORIES, HOME, copy_places, is_current
from geminga.app.container.core.words import below
from geminga.model.errors import ConfigurationError


class Image(NamedTuple):
    """Where the files of the image are in the container that runs."""

    #: Of everything: PULSAR_HOME.
    home: str
    #: Directories for copies: PULSAR_COPY_DIR, or :data:`COPY_DIRECTORIES`.
    copies: tuple[str, ...]
    #: When the container started, seconds since the epoch.
    started_s: float


def image_of(environment: Mapping[str, str]) -> Image:
    """The one that this process runs in."""
    own = environment.get("PULSAR_COPY_DIR")
    return Image(environment.get("PULSAR_HOME") or HOME, (own,) if own else COPY_DIRECTORIES, container_started_s())


def config_file(image: Image, path: str) -> str:
    """Where the file ``path`` is read: its copy of this start, or itself."""
    absolute = below(image.home, path)
    for place in copy_places(image.home, absolute, image.copies):
        try:
            if is_current(os.stat(place).st_mtime, image.started_s):
                return place
        except OSError:
            continue
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
            _write(place, applied.text)
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
            _write(place, text)
        except OSError:
            continue
        return


def remembered(image: Image, name: str) -> str | None:
    """What a program of this container kept, or None."""
    for place in copy_places(image.home, name, image.copies):
        try:
            if is_current(os.stat(place).st_mtime, image.started_s):
                with open(place, encoding="utf-8") as file:
                    return file.read()
        except OSError:
            continue
    return None


def container_started_s() -> float:
    """When the container's first process started, seconds since the epoch; 0 where that can not be told."""
    try:
        with open("/proc/1/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return booted_s + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):
        return 0.0


def _write(path: str, text: str) -> None:
    """In place: the file's directory need not be writable, and a mounted file can not be replaced."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
