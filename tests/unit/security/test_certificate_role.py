"""Roles of certificates, as Pulsar reads them out of the subject's text."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from geminga.security.certificate_role import (
    CERTIFICATE_BYTES_MAX,
    Subject,
    bookie_role_of_subject,
    distinguished_name,
    role_of_subject,
    subject_of,
)
from support.house.signing import certificate_of

CN, O, OU, MAIL = "2.5.4.3", "2.5.4.10", "2.5.4.11", "1.2.840.113549.1.9.1"  # noqa: E741


@pytest.mark.parametrize(
    ("subject", "name", "role"),
    [
        ([[(O, "Acme")], [(CN, "jane")]], "CN=jane,O=Acme", "jane"),
        ([[(CN, "jane")], [(O, "Acme")]], "O=Acme,CN=jane", "jane"),
        # The text is the other way round: what the certificate has last comes first.
        ([[(CN, "first")], [(CN, "last")]], "CN=last,CN=first", "last"),
        ([[(CN, "a,b")]], r"CN=a\,b", "a\\"),
        # Neither a value nor another attribute can pass for a common name.
        ([[(CN, "jane")], [(OU, "x,CN=admin")]], r"OU=x\,CN\=admin,CN=jane", "jane"),
        ([[(CN, "jane")], [(MAIL, "CN=admin")]], r"1.2.840.113549.1.9.1=CN\=admin,CN=jane", "jane"),
        ([[(CN, "a=b")]], r"CN=a\=b", r"a\=b"),
        ([[(CN, "jane"), (OU, "sales")]], "CN=jane+OU=sales", "jane+OU=sales"),
        ([[(CN, "")], [(O, "x")]], "O=x,CN=", None),
        ([[(CN, " jane ")]], r"CN=\ jane\ ", r"\ jane\ "),
        ([[(CN, "a\0b")]], r"CN=a\00b", r"a\00b"),
        ([[(OU, "sales")]], "OU=sales", None),
        ([], "", None),
    ],
)
def test_role_is_the_first_common_name_of_the_subject_as_text(subject: Subject, name: str, role: str | None) -> None:
    assert distinguished_name(subject) == name
    if role is None:
        with pytest.raises(ValueError, match="no common name"):
            role_of_subject(subject)
    else:
        assert role_of_subject(subject) == role


def test_name_that_pulsar_would_write_in_hex_digits_is_no_role() -> None:
    with pytest.raises(ValueError, match="shares its part"):
        role_of_subject([[(CN, "jane"), (MAIL, "a@b.c")]])


def test_subject_is_read_out_of_a_certificate() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme"), x509.NameAttribute(NameOID.COMMON_NAME, "jäne")]
    )
    begin = datetime.datetime(2026, 1, 1)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + datetime.timedelta(1))
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )
    assert role_of_subject(subject_of(made)) == "jäne"
    for wrong in (b"", made[:-1], b"\x30\x00", b"x" * (CERTIFICATE_BYTES_MAX + 1)):
        with pytest.raises(ValueError, match="certificate"):
            subject_of(wrong)


UNIT = "2.5.4.11"


@pytest.mark.parametrize(
    ("subject", "role"),
    [
        ([[(CN, "jane")], [(UNIT, "0:broker")]], "broker"),
        ([[(UNIT, "1:east; 0:x;0: broker , reader;2:")]], "broker"),
        # The first unit counts, of all numbers the last.
        ([[(UNIT, "0:a;0:b")], [(UNIT, "0:c")]], "b"),
        ([[(UNIT, "0:a:b")]], "a:b"),
    ],
)
def test_role_for_a_bookie_stands_in_the_organizational_unit(subject: list[list[tuple[str, str]]], role: str) -> None:
    assert bookie_role_of_subject(subject) == role


@pytest.mark.parametrize(
    "subject",
    [
        [],
        [[(CN, "0:jane")]],
        [[(UNIT, "broker")]],
        [[(UNIT, "00:broker")]],
        [[(UNIT, "0:")]],
        [[(UNIT, "0:,broker")]],
        [[(UNIT, "0:a;0:")]],
        [[(UNIT, "1:east")], [(UNIT, "0:broker")]],
        [[(CN, "jane"), (UNIT, "0:broker")]],
    ],
)
def test_nothing_else_is_a_role_for_a_bookie(subject: list[list[tuple[str, str]]]) -> None:
    with pytest.raises(ValueError, match="organizational unit"):
        bookie_role_of_subject(subject)


def test_certificate_of_an_unknown_version_can_not_be_read() -> None:
    """Found by ``make fuzz``: the package that reads it has an error of its own for that, which is no ValueError."""
    version = bytes.fromhex("a003020102")
    good = certificate_of("jane")
    assert good.count(version) == 1
    with pytest.raises(ValueError, match="the certificate can not be read"):
        subject_of(good.replace(version, bytes.fromhex("a00302010c")))
