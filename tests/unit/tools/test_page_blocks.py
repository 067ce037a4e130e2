"""Which blocks of docs/deploy.md `make image-test` runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.image.files import locked, needed
from tools.image.page_blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[3]


def test_blocks_with_their_lines_without_packages_of_the_machine() -> None:
    page = "# T\n```sh\napt-get install x\n```\n\n```sh\na\nb\n```\n```python\np\n```\n```yaml\ny: 1\n```\n"
    assert blocks(page) == [("sh", "a\nb\n", 6), ("yaml", "y: 1\n", 13)]


def test_the_page_has_a_container_and_a_cluster() -> None:
    found = blocks((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"))
    assert "podman run" in found[0].text
    assert [block.file for block in found if block.kind == "yaml"] == ["compose.yaml", "prometheus.yml", "boards.yaml"]
    assert "bookie-3" in found[1].text
    assert [block.kind for block in found[1:]] == ["yaml", "sh", "yaml", "yaml", "sh", "sh"]
    assert all("podman-compose" in block.text for block in found[2:] if block.kind == "sh")


def test_a_file_without_a_name_is_an_error() -> None:
    for text in ("y: 1\n", "# \n", "# a/b\n"):
        with pytest.raises(ValueError, match=r"line 7: .* expected '# FILE'"):
            assert Block("yaml", text, 7).file


def test_the_image_has_what_servers_need_and_no_spark_with_hashes() -> None:
    names = needed()
    assert {"uvicorn", "kazoo", "cryptography", "uvloop", "cffi"} <= names
    assert not names & {"pyspark", "pyarrow", "pytest", "numpy"}
    paragraphs = list(locked(names))
    assert {paragraph.partition("==")[0] for paragraph in paragraphs} == names
    assert all("--hash=sha256:" in paragraph and "# via" not in paragraph for paragraph in paragraphs)
