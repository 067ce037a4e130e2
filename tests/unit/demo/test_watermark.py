"""The watermark of a batch, from what Spark wrote down before it ran the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from demo.watermark import WatermarkError, watermark_ms


def logged(directory: Path, batch: int, text: str) -> Path:
    (directory / "offsets").mkdir(exist_ok=True)
    (directory / "offsets" / str(batch)).write_text(text)
    return directory


def test_watermark_is_that_of_the_batch(tmp_path) -> None:
    for batch, at in ((0, 0), (1, 1_577_923_200_123)):
        logged(tmp_path, batch, f'v1\n{{"batchWatermarkMs":{at},"batchTimestampMs":5,"conf":{{}}}}\n{{"t":{{}}}}')
    assert [watermark_ms(tmp_path, batch) for batch in (0, 1)] == [0, 1_577_923_200_123]


@pytest.mark.parametrize(
    "text",
    ["", "v1\n", "v1\nnot JSON\n-", 'v1\n{"batchTimestampMs":5}\n-', "v1\n[1]\n-", 'v1\n{"batchWatermarkMs":"5"}\n-'],
)
def test_offsets_without_a_watermark_are_told_with_their_file(tmp_path, text) -> None:
    with pytest.raises(WatermarkError, match=r"offsets/3.*batchWatermarkMs"):
        watermark_ms(logged(tmp_path, 3, text), 3)


def test_batch_that_was_not_logged_is_told(tmp_path) -> None:
    with pytest.raises(WatermarkError, match="offsets/4"):
        watermark_ms(tmp_path, 4)
