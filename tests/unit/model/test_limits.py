"""Limits that are not configuration."""

from __future__ import annotations

from geminga.model import limits


def test_frame_of_the_largest_message_fits_its_length_field() -> None:
    assert limits.MESSAGE_SIZE_BYTES_MAX_DEFAULT == 5 * 1024 * 1024
    assert 0 < limits.FRAME_PADDING_BYTES < limits.METADATA_VALUE_BYTES_MAX < 1 << 31
