"""What Geminga has not: each path of its table, that Apache's broker knows it."""

from __future__ import annotations

import re
from typing import Final

from geminga.broker.rest.calls.core.unbuilt import ROUTES
from tools.interop.rest.calls import Call, Story

_NAMES: Final = {"tenant": "public", "namespace": "{space}", "domain": "persistent", "bundle": "0x00000000_0x40000000"}


def _path(template: str) -> str:
    filled = re.sub(r"\{(\w+)\}", lambda found: _NAMES.get(found[1], "x"), template)
    return filled.replace("public/{space}", "{ns}").replace("{space}", "nowhere")


#: Would end Apache's broker.
_LEFT_OUT: Final = ("/admin/v2/brokers/shutdown", "/admin/v2/metadata/migration/start")

STORIES: Final = [
    Story(
        "not built",
        # Built since: what is refused of them.
        Call("POST", "/admin/v2/clusters/x/migrate", keys=False),
        Call("POST", "/admin/v2/namespaces/{ns}/migration", keys=False),
        Call("GET", "/admin/v2/namespaces/{ns}/scanOffloadedLedgers", keys=False),
        Call("GET", "/admin/v2/broker-stats/bookieops", keys=False),
        *(
            Call(method, _path(row.path), keys=False)
            for row in ROUTES
            for method in row.methods
            if not row.path.startswith(_LEFT_OUT) and not (method == "PUT" and row.path.endswith("/properties"))
        ),
    )
]
