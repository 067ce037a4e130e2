"""What our own metrics say they are."""

from __future__ import annotations

import re

from geminga.model.exposition import Page
from geminga.model.metric_help import HELP
from support.house.source_tree import product_modules


def test_every_text_is_of_a_metric_that_the_product_has() -> None:
    sources = "".join(module.text for module in product_modules() if not module.name.endswith("metric_help"))
    assert [name for name in HELP if f'"{name}"' not in sources] == []
    assert [text for text in HELP.values() if not re.fullmatch(r"[A-Z1][^\\\n]*\.", text)] == []


def test_a_page_has_the_text_before_the_type() -> None:
    page = Page()
    page.add("pulsar_topics_count", (), 1)
    page.add("geminga_owned_bundles", (), 2)
    assert page.text().splitlines() == [
        "# TYPE pulsar_topics_count gauge",
        "pulsar_topics_count 1",
        f"# HELP geminga_owned_bundles {HELP['geminga_owned_bundles']}",
        "# TYPE geminga_owned_bundles gauge",
        "geminga_owned_bundles 2",
    ]
