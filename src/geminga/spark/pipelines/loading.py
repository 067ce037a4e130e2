"""From a file, or the name of a ready pipeline, to a :class:`Pipeline`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from geminga.runtime.local_file import read_local_file
from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.parsing import parse_pipeline, read_document
from geminga.spark.pipelines.core.problems import PipelineError, Problem
from geminga.spark.pipelines.core.ready import READY, document_of, expanded
from geminga.spark.pipelines.core.yaml_text import Mapping as Document
from geminga.spark.pipelines.core.yaml_text import Scalar

#: Where the brokers are, for files that do not say.
SERVICE_URL_VARIABLE: Final = "GEMINGA_SERVICE_URL"


def load(path: str, settings: Mapping[str, str] | None = None, *, service_url: str = "") -> Pipeline:
    """The pipeline of a file; ``settings``: parameters of the ready one that it uses. Raises PipelineError."""
    try:
        text = read_local_file(path).decode()
    except UnicodeDecodeError as error:
        raise PipelineError([Problem("", f"not UTF-8 ({error.reason} at byte {error.start})")], path) from None
    except OSError as error:
        raise PipelineError([Problem("", f"can not be read: {error.strerror or error}")], path) from None
    document = read_document(text, path)
    if settings:
        document = _with_parameters(document, settings, path)
    base = os.path.dirname(path) or "."
    return parse_pipeline(expanded(document, path), file=path, base=base, service_url=_url(service_url))


def load_ready(name: str, settings: Mapping[str, str], *, service_url: str = "") -> Pipeline:
    """A ready pipeline; paths are relative to where the program runs. Raises PipelineError."""
    return parse_pipeline(document_of(name, settings), service_url=_url(service_url))


def is_ready(name: str) -> bool:
    """Whether there is a ready pipeline of the name, and no file."""
    return name in READY and not os.path.isfile(name)


def _url(given: str) -> str:
    return given or os.environ.get(SERVICE_URL_VARIABLE, "")


def _with_parameters(document: Document, settings: Mapping[str, str], path: str) -> Document:
    if "use" not in document.entries:
        names = ", ".join(sorted(settings))
        raise PipelineError(
            [Problem("", f"--set {names}: only for a ready pipeline, or a file that says use: NAME")], path
        )
    given = document.entries.get("with")
    merged = Document(document.line)
    for key, line in given.lines.items() if isinstance(given, Document) else ():
        if key not in settings and isinstance(given, Document):
            merged.put(key, line, given.entries[key])
    for key, value in settings.items():
        merged.put(key, document.line, Scalar(value, document.line, is_plain=False))
    document.entries["with"] = merged
    document.lines.setdefault("with", document.line)
    return document
