"""The manifest of a backup, as bytes. Pure; ``docs/formats/backup.md`` is the specification."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from geminga.model.crc32c import crc32c
from geminga.model.errors import DataDirectoryError

MANIFEST_FILE: Final = "geminga-backup.json"
FILES_DIRECTORY: Final = "files"
#: Below it, where the backup of a cluster keeps what it copies; it goes at the end.
WORK_FILE: Final = "metadata.work"
#: Format of backups of a standalone.
BACKUP_FORMAT: Final = 1
#: Of those of a cluster, and the newest that this program reads.
CLUSTER_FORMAT: Final = 2
#: What ``origin`` begins with where it is a cluster; the cluster's id follows.
CLUSTER_ORIGIN: Final = "cluster:"
_HEX: Final = re.compile(r"[0-9a-f]{8}")
_STORED: Final = re.compile(rf"[0-9]{{8,}}-.+|{re.escape(WORK_FILE)}.*")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class BackupFile(NamedTuple):
    """One file of the data directory, and where the backup has it."""

    #: Below the data directory, with slashes.
    name: str
    #: Below ``files/``.
    stored: str
    size_bytes: int
    crc32c: int


class BackupManifest(NamedTuple):
    """What a backup is."""

    #: 16 hex digits, drawn for each backup.
    backup_id: str
    #: How many backups were made there, this one included.
    serial: int
    #: The moment whose state it is, by the server's clock, ms since the epoch.
    as_of_ms: int
    program: str
    #: Format of the data directory.
    directory_format: int
    #: ``restored.id`` of the data directory; empty: it was never restored. Of a cluster: see :data:`CLUSTER_ORIGIN`.
    origin: str
    #: Instance id of each bookie, 32 hex digits, by its directory.
    bookies: dict[str, str]
    files: tuple[BackupFile, ...]

    @property
    def is_of_cluster(self) -> bool:
        """Whether it was copied from a cluster's metadata store and bookies."""
        return self.origin.startswith(CLUSTER_ORIGIN)

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    def facts(self) -> dict[str, Any]:
        """Which one it is and how large, as commands print it."""
        return {
            "backupId": self.backup_id,
            "serial": self.serial,
            "asOfMs": self.as_of_ms,
            "program": self.program,
            "files": len(self.files),
            "sizeBytes": self.size_bytes,
        }

    def is_of(self, origin: str, bookies: dict[str, str]) -> bool:
        """Whether a file of the same name in that data directory may be the same file."""
        return self.origin == origin and all(bookies.get(name) == known for name, known in self.bookies.items())


def _text_of(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def encode_manifest(manifest: BackupManifest) -> bytes:
    """The whole file: one JSON object on a line."""
    document = {
        "asOfMs": manifest.as_of_ms,
        "backupId": manifest.backup_id,
        "bookies": manifest.bookies,
        "directoryFormat": manifest.directory_format,
        "files": [[file.name, file.stored, file.size_bytes, f"{file.crc32c:08x}"] for file in manifest.files],
        "origin": manifest.origin,
        "program": manifest.program,
        "serial": manifest.serial,
    }
    checksum = f"{crc32c(_text_of(document)):08x}"
    return _text_of({"backup": document, "crc32c": checksum, "format": _format_of(manifest)}) + b"\n"


def decode_manifest(data: bytes, path: str) -> BackupManifest:
    """What the file says; ``path``: for the sentence of a DataDirectoryError, where it is damaged or newer."""
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DataDirectoryError(f"{path} is damaged: {error}") from error
    number = whole.get("format") if isinstance(whole, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise DataDirectoryError(f"{path} is damaged: it names no format number")
    if number > CLUSTER_FORMAT:
        raise DataDirectoryError(
            f"{path} has backup format {number}; this program reads formats up to {CLUSTER_FORMAT}: use the "
            "newer program"
        )
    document = whole.get("backup")
    if not isinstance(document, dict) or whole.get("crc32c") != f"{crc32c(_text_of(document)):08x}":
        raise DataDirectoryError(f"{path} is damaged: its checksum is another one")
    try:
        manifest = _manifest_of(document)
    except (KeyError, TypeError, ValueError) as error:
        raise DataDirectoryError(f"{path} is damaged: {error}") from error
    if number != _format_of(manifest):
        raise DataDirectoryError(
            f"{path} is damaged: format {number}, expected {_format_of(manifest)} of such a backup"
        )
    return manifest


def _format_of(manifest: BackupManifest) -> int:
    return CLUSTER_FORMAT if manifest.is_of_cluster else BACKUP_FORMAT


def _manifest_of(document: dict[str, Any]) -> BackupManifest:
    files = tuple(
        BackupFile(_name(name), _plain(stored), int(size), _checksum(crc))
        for name, stored, size, crc in document["files"]
    )
    return BackupManifest(
        backup_id=str(document["backupId"]),
        serial=int(document["serial"]),
        as_of_ms=int(document["asOfMs"]),
        program=str(document["program"]),
        directory_format=int(document["directoryFormat"]),
        origin=str(document["origin"]),
        bookies={_plain(name): str(instance) for name, instance in document["bookies"].items()},
        files=files,
    )


def _name(text: str) -> str:
    """A path that leads nowhere else."""
    for word in text.split("/"):
        _plain(word)
    return text


def _plain(word: str) -> str:
    if not _PLAIN.fullmatch(word):
        raise ValueError(f"{word[:80]!r} is no name of a file")
    return word


def _checksum(text: str) -> int:
    if not _HEX.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no checksum")
    return int(text, 16)


def stored_name(serial: int, name: str) -> str:
    """Where backup ``serial`` puts a file that it copies: no other backup has used that name."""
    return f"{serial:08d}-{name.replace('/', '-')}"


def is_stored_name(name: str) -> bool:
    """Whether a backup may have put it below ``files/``, or what SQLite or a cut off writing leaves beside it."""
    return _STORED.fullmatch(name) is not None
