"""Where a configuration key says that bytes are."""

from __future__ import annotations

import pytest

from geminga.security.key_text import PATH_LENGTH_MAX, TEXT_LENGTH_MAX, KeyMaterial, place_of, shown


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("file:///etc/pulsar/my-secret.key", KeyMaterial("/etc/pulsar/my-secret.key")),
        ("file:/etc/secret.key", KeyMaterial("/etc/secret.key")),
        ("file://localhost/etc/secret.key", KeyMaterial("/etc/secret.key")),
        ("file:///etc/a%20b", KeyMaterial("/etc/a b")),
        ("file:conf/secret.key", KeyMaterial("conf/secret.key")),
        ("data:;base64,AAEC", KeyMaterial(data=b"\0\1\2")),
        ("data:application/octet-stream;base64,AAEC", KeyMaterial(data=b"\0\1\2")),
        ("data:;base64,AAE%3D", KeyMaterial(data=b"\0\1")),
        ("data:,jane%3Aab7Wl3zw4JrNg", KeyMaterial(data=b"jane:ab7Wl3zw4JrNg")),
        # A file of that name is looked for first.
        ("AAEC", KeyMaterial("AAEC", b"\0\1\2")),
        ("/etc/secret.key", KeyMaterial("/etc/secret.key")),
    ],
)
def test_forms_of_pulsar(text: str, place: KeyMaterial) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("file:///etc/a%20b", "/etc/a b"),
        ("/etc/pulsar/secret.key", "/etc/pulsar/secret.key"),
        ("/etc/pulsar/secret", "/etc/pulsar/secret"),
        ("./secret.key", "./secret.key"),
        ("../conf/secret.key", "../conf/secret.key"),
        ("conf/secret.key", "its value"),
        ("s3cr3t", "its value"),
        ("", "its value"),
        ("data:;base64,AAEC", "its value"),
        ("/" + "a/B+" * 10 + "=", "its value"),
        ("/" + "a" * 38, "/" + "a" * 38),
        ("/" + "a." * PATH_LENGTH_MAX, "its value"),
    ],
)
def test_what_could_be_the_secret_is_not_shown(text: str, told: str) -> None:
    assert shown(text) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("file:", "without a path"),
        ("file:///", "without a path"),
        ("file://elsewhere/etc/key", "a file of the host 'elsewhere'"),
        ("data:", "without data"),
        ("data:;base64,", "without data"),
        ("data:;base64", "without data"),
        ("data:;base64,!!!", "not base64"),
        ("x" * (TEXT_LENGTH_MAX + 1), "longer than"),
    ],
)
def test_what_is_none_of_them_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        place_of(text)
