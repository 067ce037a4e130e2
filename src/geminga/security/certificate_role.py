"""The role of a client's certificate: the common name of its subject, as Pulsar's provider for TLS reads it.

A bookie's reads another one (:func:`bookie_role_of_subject`).

Pulsar writes the subject as RFC 2253 says (``CN=jane,OU=sales,O=Acme``, the last part of the certificate first),
splits that text at commas, and takes what follows the first ``CN=``. So of several common names the one that the
certificate has last counts; a name with a comma is cut at it, and its backslash stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from geminga.model.extras import needed_for

_COMMON_NAME: Final = "2.5.4.3"
_UNIT: Final = "2.5.4.11"
#: Object ids of RFC 2253's short names.
_SHORT: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: Characters that are written with a backslash.
_ESCAPED: Final = frozenset(',=+<>#;"\\')
#: Bytes of a certificate; what TLS took is smaller.
CERTIFICATE_BYTES_MAX: Final = 64 << 10

#: Parts of a subject in the certificate's order, each of one or more (object id, value).
Subject: TypeAlias = Sequence[Sequence[tuple[str, str]]]


def subject_of(certificate: bytes) -> Subject:
    """The subject of a certificate in DER. Raises ValueError."""
    if len(certificate) > CERTIFICATE_BYTES_MAX:
        raise ValueError(f"a certificate of more than {CERTIFICATE_BYTES_MAX} bytes")
    with needed_for("a role out of a certificate", "crypto"):
        from cryptography import x509
    try:
        subject = x509.load_der_x509_certificate(certificate).subject
        return [[(item.oid.dotted_string, _text(item.value)) for item in part] for part in subject.rdns]
    except (ValueError, TypeError, x509.InvalidVersion):
        raise ValueError("the certificate can not be read") from None


def role_of_subject(subject: Subject) -> str:
    """The role. Raises ValueError where there is none."""
    for part in subject:
        kinds = {kind for kind, _ in part}
        if len(part) > 1 and _COMMON_NAME in kinds and not kinds <= _SHORT.keys():
            raise ValueError("the certificate's common name shares its part with what RFC 2253 has no name for")
    for text in distinguished_name(subject).split(","):
        kind, equals, value = text.partition("=")
        if equals and kind == "CN" and value:
            return value
    raise ValueError("Client unable to authenticate with TLS certificate: its subject has no common name (CN)")


def bookie_role_of_subject(subject: Subject) -> str:
    """The role that BookKeeper's ``BookieAuthZFactory`` reads. Raises ValueError where there is none.

    It stands in the first organizational unit (OU) as ``0:role``, beside what has other numbers: ``0:broker;1:east``;
    of several roles (``0:broker,reader``) the first counts.

    >>> bookie_role_of_subject([[("2.5.4.11", "1:east;0:broker, reader")], [("2.5.4.3", "jane")]])
    'broker'
    """
    units = [part[0][1] for part in subject if len(part) == 1 and part[0][0] == _UNIT]
    if not units:
        raise ValueError("its subject has no organizational unit (OU)")
    found = ""
    for text in units[0].split(";"):
        number, colon, value = text.partition(":")
        # The last of a number counts.
        if colon and number == "0":
            found = value.split(",")[0].strip()
    if not found:
        raise ValueError("its organizational unit (OU) has no role: expected 0:role")
    return found


def distinguished_name(subject: Subject) -> str:
    """The subject as RFC 2253 writes it; values of kinds that it has no name for are text here, in Pulsar hex digits.

    None of them holds a role.
    """
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part) for part in reversed(subject)
    )


def _escaped(value: str) -> str:
    text = "".join("\\00" if one == "\0" else f"\\{one}" if one in _ESCAPED else one for one in value)
    inner = text.strip(" ")
    if not inner:
        return "\\ " * len(text)
    before, after = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return "\\ " * before + inner + "\\ " * after


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        raise ValueError("a value that is no text")
    return value
