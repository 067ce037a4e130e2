"""How packages declare configuration."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.model.settings import setting, settings_of


@dataclass(frozen=True, slots=True)
class _Config:
    size: int = setting("maxSize", 5, "bytes > 0", minimum=1, maximum=10)
    mode: str = setting("mode", "a", choices=("a", "b"))
    private: int = 3


def test_setting_keeps_its_default() -> None:
    assert (_Config().size, _Config().mode, _Config(size=7).size) == (5, "a", 7)


def test_settings_are_listed_by_key_with_what_is_known_of_them() -> None:
    found = settings_of(_Config)
    assert set(found) == {"maxSize", "mode"}
    size, field_name = found["maxSize"]
    assert field_name == "size"
    assert (size.key, size.expectation, size.minimum, size.maximum) == ("maxSize", "bytes > 0", 1, 10)
    assert found["mode"][0].choices == ("a", "b")


def test_class_without_settings_has_none() -> None:
    assert settings_of(int) == {}
