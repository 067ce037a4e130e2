"""Lake files in a bucket of an S3-compatible store, through ``pyarrow``. All calls block.

Who asks is told by the usual environment: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``,
profiles, or the machine's role. An upload that a crash cut off leaves parts that are no object: a lifecycle rule of the
bucket (``AbortIncompleteMultipartUpload``) takes them away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Final
from urllib.parse import urlsplit

from geminga.lake.store import ArrowFile, StoredFile

#: Seconds until a connection, and an answer, is given up; each is tried so often.
_CONNECT_S: Final = 10.0
_REQUEST_S: Final = 30.0
_ATTEMPTS: Final = 3
#: What Arrow keeps until it is closed; of more it sends parts before that, and completes them where one fails.
_WHOLE_BYTES_MAX: Final = 4 << 20


class BucketStore:
    """Below a prefix of one bucket."""

    __slots__ = ("_base", "_files", "_fs", "root")

    def __init__(self, bucket: str, prefix: str, *, region: str = "", endpoint: str = "") -> None:
        """``endpoint``: ``http(s)://host:port``; empty: Amazon's. Raises OSError."""
        from pyarrow import fs

        self._fs = fs
        self._base = f"{bucket}/{prefix}" if prefix else bucket
        self.root = f"s3://{self._base}"
        options: dict[str, object] = {}
        if endpoint:
            parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
            options = {"endpoint_override": parts.netloc, "scheme": parts.scheme}
        if region or endpoint:
            options["region"] = region or "us-east-1"
        self._files = fs.S3FileSystem(
            connect_timeout=_CONNECT_S,
            request_timeout=_REQUEST_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            # Else all of a file that the bucket does not take would wait in memory, and no write for it.
            background_writes=False,
            **options,
        )

    def _path(self, path: str) -> str:
        return f"{self._base}/{path}"

    @contextmanager
    def write(self, path: str) -> Iterator[IO[bytes]]:
        """See ``LakeStore``."""
        output = self._files.open_output_stream(self._path(path))
        try:
            yield output
        except BaseException:
            # Arrow completes what it lets go of: so the object comes, and goes.
            with suppress(OSError):
                output.close()
            with suppress(OSError):
                self.delete(path)
            raise
        output.close()

    def read(self, path: str) -> ArrowFile:
        """See ``LakeStore``."""
        return self._files.open_input_file(self._path(path))

    def read_bytes(self, path: str) -> bytes:
        """See ``LakeStore``."""
        with self._files.open_input_stream(self._path(path)) as source:
            return bytes(source.read())

    def write_bytes(self, path: str, data: bytes) -> None:
        """See ``LakeStore``. What is there stays where that fails: it comes beside it first if it comes in parts."""
        if len(data) <= _WHOLE_BYTES_MAX:
            with self._files.open_output_stream(self._path(path)) as output:
                output.write(data)
            return
        beside = f"{path}.new"
        with self.write(beside) as output:
            output.write(data)
        try:
            self._files.copy_file(self._path(beside), self._path(path))
        finally:
            with suppress(OSError):
                self.delete(beside)

    def write_new(self, path: str, data: bytes) -> None:
        """Arrow does not put on a condition."""

    def delete(self, path: str) -> None:
        """See ``LakeStore``."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(path))

    def list(self, directory: str) -> list[StoredFile]:
        """See ``LakeStore``."""
        selector = self._fs.FileSelector(self._path(directory), allow_not_found=True)
        found = self._files.get_file_info(selector)
        return sorted(StoredFile(one.base_name, one.size) for one in found if one.is_file)

    def directories(self, directory: str) -> Sequence[str]:
        """See ``LakeStore``."""
        selector = self._fs.FileSelector(self._path(directory), allow_not_found=True)
        found = self._files.get_file_info(selector)
        return sorted(one.base_name for one in found if one.type == self._fs.FileType.Directory)

    def size_bytes(self, path: str) -> int:
        """See ``LakeStore``."""
        found = self._files.get_file_info(self._path(path))
        if not found.is_file:
            raise FileNotFoundError(f"{self.root}/{path} is not there")
        return int(found.size)

    def remove_directory(self, directory: str) -> None:
        """A bucket has no directories; Arrow leaves an empty object in place of one whose last file goes."""
