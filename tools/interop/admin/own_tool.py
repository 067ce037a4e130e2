"""``geminga pulsar-admin`` in place of ``pulsar-admin``: the same lines, in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

from geminga.app.administration.main import run
from tools.interop.pulsar_admin import Printed


class OwnTool:
    """Runs lines as :class:`tools.interop.pulsar_admin.PulsarAdmin` does."""

    def run(self, url: str, *words: str) -> Printed:
        """One command at the broker whose REST is at ``url``."""
        out, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = run(["pulsar-admin", "--admin-url", url, *words])
        return Printed(code == 0, out.getvalue(), errors.getvalue())
