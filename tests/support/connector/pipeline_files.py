"""YAML written in every style that pipeline files are read in, and nodes as plain values."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from geminga.spark.pipelines.core import yaml_text as yaml


def plain(node: yaml.Node) -> object:
    if isinstance(node, yaml.Scalar):
        return node.text
    if isinstance(node, yaml.Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(value) for key, value in node.entries.items()}


class Writer:
    """Writes a document in styles that hypothesis draws."""

    def __init__(self, draw) -> None:
        self._draw = draw

    #: Whether what was written last is in brackets or quotes.
    was_flow = False

    def write(self, value: object, indent: int = 0) -> list[str]:
        at = " " * indent
        if isinstance(value, str) or self._draw(st.integers(0, 4)) == 0:
            self.was_flow = True
            return [at + self.flow(value)]
        lines = []
        step = indent + self._draw(st.integers(1, 3))
        for item in value.items() if isinstance(value, dict) else [(None, one) for one in value]:
            begin = "- " if item[0] is None else f"{self.scalar(item[0])}: "
            if self._draw(st.booleans()):
                lines += self._draw(st.sampled_from([[], ["", "# a comment"]]))
            if isinstance(item[1], str):
                lines += self.beside(at + begin, item[1], step)
            else:
                inner = self.write(item[1], step)
                is_flow = len(inner) == 1 and self.was_flow
                lines += [at + begin + inner[0].lstrip()] if is_flow else [at + begin.rstrip(), *inner]
        self.was_flow = False
        return lines

    def beside(self, begin: str, text: str, step: int) -> list[str]:
        is_block = text.strip(" \t\n") == text and text and "\t" not in text and text.isprintable()
        if is_block and self._draw(st.booleans()):
            return [f"{begin}|-", " " * step + text]
        return [begin + self.scalar(text) + self._draw(st.sampled_from(["", "  # why: [this]"]))]

    def scalar(self, text: str) -> str:
        style = self._draw(st.integers(0, 2))
        if style == 0 and text and all(c in "abcxyz_ 0129" for c in text) and text.strip() == text:
            return text
        if style == 1 and text.isprintable():
            return "'" + text.replace("'", "''") + "'"
        return json.dumps(text)

    def flow(self, value: object) -> str:
        if isinstance(value, str):
            return self.scalar(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.flow, value))}]"
        return "{" + ", ".join(f"{self.scalar(key)}: {self.flow(one)}" for key, one in value.items()) + "}"
