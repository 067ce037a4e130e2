"""A bucket over real HTTP: the calls of S3 that Arrow makes, in memory, with faults. Signatures are not checked."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.processes.web_answers import Served


class S3Server(Served):
    """``with S3Server() as s3``: at ``s3.endpoint``; ``s3.objects`` by ``bucket/key``."""

    def __init__(self, buckets: tuple[str, ...] = ("lake",)) -> None:
        self.buckets = set(buckets)
        self.objects: dict[str, bytes] = {}
        #: Uploads in parts that are not complete.
        self.uploads: dict[str, dict[int, bytes]] = {}
        #: Methods that are answered with this status, and how often still (-1: always).
        self.failing: dict[str, tuple[int, int]] = {}
        self.calls: list[str] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"s3": self})
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        self.endpoint = self.url

    def fails(self, method: str) -> int:
        """The status with which a call is to fail; 0: it is not."""
        with self._lock:
            self.calls.append(method)
            status, times = self.failing.get(method, (0, 0))
            if times > 0:
                self.failing[method] = (status, times - 1)
            return status if times else 0


class _Handler(BaseHTTPRequestHandler):
    s3: S3Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _key(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return unquote(parts.path).lstrip("/"), parse_qs(parts.query, keep_blank_values=True)

    def _body(self) -> bytes:
        if "aws-chunked" in self.headers.get("Content-Encoding", "") or self.headers.get(
            "x-amz-decoded-content-length"
        ):
            raw = self._chunked() if self.headers.get("Transfer-Encoding") == "chunked" else self._read_length()
            return _without_chunks(raw)
        if self.headers.get("Transfer-Encoding") == "chunked":
            return self._chunked()
        return self._read_length()

    def _read_length(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunked(self) -> bytes:
        data = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._answer(status, text.encode(), {"Content-Type": "application/xml"})

    def _is_failing(self) -> bool:
        status = self.s3.fails(self.command)
        if status:
            self._body()
            self._error(status, {503: "ServiceUnavailable", 403: "AccessDenied"}.get(status, "InternalError"))
        return bool(status)

    def do_HEAD(self) -> None:
        if self._is_failing():
            return
        key, _ = self._key()
        if key.rstrip("/") in self.s3.buckets:
            self._answer(200)
        elif key in self.s3.objects:
            headers = {"Content-Length": str(len(self.s3.objects[key])), "ETag": '"x"'}
            self._answer(200, b"", {**headers, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"})
        else:
            self._answer(404)

    def do_GET(self) -> None:
        if self._is_failing():
            return
        key, query = self._key()
        if "list-type" in query or "prefix" in query:
            self._list(key, query)
        elif key in self.s3.objects:
            data = self.s3.objects[key]
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if found is None:
                self._answer(200, data, {"ETag": '"x"'})
                return
            first, last = int(found[1]), min(int(found[2] or len(data) - 1), len(data) - 1)
            headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}", "ETag": '"x"'}
            self._answer(206, data[first : last + 1], headers)
        else:
            self._error(404, "NoSuchKey")

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        bucket = bucket.rstrip("/")
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        keys = sorted(name.partition("/")[2] for name in self.s3.objects if name.partition("/")[0] == bucket)
        contents, common = "", set()
        for key in (key for key in keys if key.startswith(prefix)):
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                common.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            size = len(self.s3.objects[f"{bucket}/{key}"])
            stamp = "2024-01-01T00:00:00.000Z"
            contents += f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><LastModified>{stamp}</LastModified>"
            contents += '<ETag>"x"</ETag></Contents>'
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(common))
        text = f"<?xml version='1.0'?><ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
        text += f"<IsTruncated>false</IsTruncated>{contents}{prefixes}</ListBucketResult>"
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def do_PUT(self) -> None:
        if self._is_failing():
            return
        key, query = self._key()
        body = self._body()
        if "x-amz-copy-source" in self.headers:
            self.s3.objects[key] = self.s3.objects[unquote(self.headers["x-amz-copy-source"]).lstrip("/")]
            text = '<CopyObjectResult><ETag>"x"</ETag></CopyObjectResult>'
            self._answer(200, text.encode(), {"Content-Type": "application/xml"})
            return
        if "uploadId" in query:
            self.s3.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
        elif "/" in key:
            self.s3.objects[key] = body
        self._answer(200, b"", {"ETag": '"x"'})

    def do_POST(self) -> None:
        if self._is_failing():
            return
        key, query = self._key()
        body = self._body()
        if "uploads" in query:
            upload = f"upload{len(self.s3.calls)}"
            self.s3.uploads[upload] = {}
            bucket, _, name = key.partition("/")
            text = f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(name)}</Key>"
            text += f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            self._answer(200, text.encode(), {"Content-Type": "application/xml"})
        elif "uploadId" in query:
            parts = self.s3.uploads.pop(query["uploadId"][0])
            self.s3.objects[key] = b"".join(parts[number] for number in sorted(parts))
            text = '<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>'
            self._answer(200, text.encode(), {"Content-Type": "application/xml"})
        else:
            for name in re.findall(rb"<Key>(.*?)</Key>", body):
                self.s3.objects.pop(f"{key}/{name.decode()}", None)
            self._answer(200, b"<DeleteResult></DeleteResult>", {"Content-Type": "application/xml"})

    def do_DELETE(self) -> None:
        if self._is_failing():
            return
        key, query = self._key()
        if "uploadId" in query:
            self.s3.uploads.pop(query["uploadId"][0], None)
        else:
            self.s3.objects.pop(key, None)
        self._answer(204)


def _without_chunks(raw: bytes) -> bytes:
    """The payload of ``aws-chunked``: size, signature, bytes, again and again; then trailers."""
    data, at = b"", 0
    while at < len(raw):
        end = raw.index(b"\r\n", at)
        size = int(raw[at:end].split(b";")[0], 16)
        if not size:
            break
        data += raw[end + 2 : end + 2 + size]
        at = end + 2 + size + 2
    return data
