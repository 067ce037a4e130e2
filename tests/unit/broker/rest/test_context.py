"""The context of the REST handlers: it must not cost the HTTP software before anybody asks."""

from __future__ import annotations

from support.house.python_programs import run_python

PROGRAM = """
import sys
import geminga.broker.rest.calls.context
import geminga.broker.rest.http.server
print([name for name in ("starlette", "uvicorn") if name in sys.modules])
"""


def test_context_and_server_do_not_import_the_http_software() -> None:
    done = run_python(PROGRAM)
    assert done.stdout.strip() == "[]"
