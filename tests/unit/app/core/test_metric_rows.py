"""Metrics told to another process are the same there."""

from __future__ import annotations

import math

import pytest

from geminga.app.servers.core.metric_rows import decode_rows, encode_rows
from geminga.model.exposition import Page
from geminga.model.histogram import Quantiles


def test_page_of_rows_that_were_told_is_that_of_their_sources() -> None:
    sources = [
        ((), lambda: {"a_total": 3, "b": 0.5}),
        ((("bookie", 'x"y'),), lambda: {"c": Quantiles(((0.5, 1.25), (0.99, math.nan)), 4, 5.5)}),
    ]
    here, there = Page(), Page()
    for labels, source in sources:
        here.add_source(source, labels)
    for labels, said in decode_rows(encode_rows(sources)):
        there.add_said(said, labels)
    assert there.text() == here.text()
    assert 'c{bookie="x\\"y",success="true",quantile="0.99"} NaN' in here.text()


@pytest.mark.parametrize("data", [b"", b"{", b"3", b'[["a"]]', b'[[[], {"a": "b"}]]', b'[[[], {"a": {"count": 1}}]]'])
def test_what_is_no_rows_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_rows(data)
