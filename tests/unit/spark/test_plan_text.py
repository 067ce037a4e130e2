"""Plans as text: what comes back, and what is refused."""

from __future__ import annotations

import pytest

from geminga.spark.rules.option_values import OptionError
from geminga.spark.source_rules.lake_plan import LakeRange
from geminga.spark.source_rules.offsets import ReadPosition
from geminga.spark.source_rules.options import Narrowed, SourceOptions
from geminga.spark.source_rules.plan_text import decode_plan, encode_plan
from geminga.spark.source_rules.planner import TopicRange

BROKER = TopicRange("persistent://p/n/a", ReadPosition(-1, -1), ReadPosition(3, 0), is_first=False)
FILE = LakeRange("persistent://p/n/b", ReadPosition(3, 0, 2), ReadPosition(3, 9, 1), "p/n/b/ledger-3.parquet", 0, 2)
PLAN = ((BROKER, FILE), (FILE,))
OPTIONS = {"service.url": "pulsar://h:1", "topic": "a"}


def test_plan_comes_back_from_its_text_as_it_was():
    assert decode_plan("x", encode_plan(PLAN)) == PLAN
    assert decode_plan("x", encode_plan(())) == ()
    assert SourceOptions.parse({**OPTIONS, "lake.plan": encode_plan(PLAN)}, is_stream=False).plan == PLAN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"v":2,"tasks":[]}',
        '{"v":1,"tasks":[[1]]}',
        '{"v":1,"tasks":[[{"topic":"a","start":"x","end":"1:2:0"}]]}',
        encode_plan(((FILE,),)).replace("[0, 2]", "[2, 0]"),
    ],
)
def test_text_that_is_no_plan_is_an_error_that_names_the_option(text):
    with pytest.raises(OptionError, match=r"lake\.plan"):
        decode_plan("lake.plan", text)


def test_plan_is_for_batch_reads_only():
    with pytest.raises(OptionError, match=r"lake\.plan"):
        SourceOptions.parse({**OPTIONS, "lake.plan": encode_plan(PLAN)}, is_stream=True)


def test_filters_cut_what_was_planned():
    at = ReadPosition(3, 4, 1)
    assert Narrowed(message=at).clip(FILE) == LakeRange(
        FILE.topic, at, ReadPosition(3, 4, 2), FILE.path, FILE.first_group, FILE.end_group
    )
    assert Narrowed(message=at).clip(BROKER) is None
    assert Narrowed(topics=frozenset([BROKER.topic])).clip(BROKER) == BROKER
    assert Narrowed(topics=frozenset([BROKER.topic])).clip(FILE) is None
