"""Pipeline files: what is written is read back, whatever its style; what is no file is told with a line."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from geminga.spark.pipelines.core import yaml_text as yaml
from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.expressions import columns_of, defect, names_in
from geminga.spark.pipelines.core.parsing import KEYS, parse_pipeline, read_document
from geminga.spark.pipelines.core.problems import PipelineError
from support.connector.pipeline_files import Writer, plain

CHARACTERS = st.characters(blacklist_categories=["Cs"], blacklist_characters="\ufeff\x85\u2028\u2029\r")
TEXTS = st.text(CHARACTERS, max_size=12)
WORDS = st.text("abcxyz_-.:#'\"[]{},&*!|>%@` 0129\\", max_size=10)
SCALARS = TEXTS | WORDS
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, min_size=1, max_size=4) | st.dictionaries(SCALARS, inner, min_size=1, max_size=4),
    max_leaves=12,
)


@given(st.data(), DOCUMENTS)
def test_what_is_written_is_read(data, document) -> None:
    text = "\n".join(Writer(data.draw).write(document)) + "\n"
    assert plain(yaml.parse_yaml(text)) == document, text


@given(st.text(CHARACTERS | st.sampled_from("\n\r\t -:#[]{}'\"|>&*!,?"), max_size=60))
def test_any_text_is_read_or_refused_with_its_line(text) -> None:
    try:
        yaml.parse_yaml(text)
    except yaml.YamlError as error:
        refused = error
    else:
        return
    assert 1 <= refused.line <= max(1, text.count("\n") + text.count("\r") + 1)
    assert refused.problem


KEYED = st.dictionaries(st.sampled_from(KEYS) | WORDS, DOCUMENTS, max_size=6)


@given(KEYED)
def test_any_document_is_a_pipeline_or_is_refused(document) -> None:
    text = json.dumps(document, ensure_ascii=False) if document else "a: b"
    try:
        made = parse_pipeline(read_document(text, "p.yaml"), file="p.yaml")
    except PipelineError as error:
        refused = error
    else:
        assert isinstance(made, Pipeline)
        return
    assert all(problem.text for problem in refused.problems)
    assert str(refused).startswith("p.yaml")


@given(st.text("ab_1(),.'\"`[]->= \n\\*/-;", max_size=40))
def test_expressions_are_looked_at_without_an_end(text) -> None:
    defect(text)
    assert all(isinstance(name, str) for name in names_in(text))
    try:
        found = columns_of(text)
    except ValueError as error:
        found = ()
        told = str(error)
    else:
        told = "columns"
    assert told
    assert len(set(found)) == len(found)
