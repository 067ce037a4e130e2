"""What is asked of TLS: files with the keys that named them, versions, ciphers, and what peers must show."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError


class Named(NamedTuple):
    """The path of a file, or empty for none, and the configuration key that gives it, for sentences."""

    key: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.path}"


class PeerCertificate(Enum):
    """What a server asks of its clients."""

    #: No certificate.
    UNASKED = auto()
    #: One, and it must be good if there is one.
    WANTED = auto()
    #: A good one, or no connection.
    REQUIRED = auto()


@dataclass(frozen=True, slots=True)
class Material:
    """Where an end's own certificate and key are, and whom it trusts: PEM files, or PKCS#12 stores."""

    #: Certificates, the own one first; or a PKCS#12 store, which has the key too.
    certificate: Named
    #: Empty: in the same file.
    private_key: Named
    #: Empty: the system's authorities for a client, nobody for a server.
    trust: Named
    #: Key and text: of the store, or of the encrypted key.
    password_key: str = ""
    password: str = field(default="", repr=False)
    trust_password_key: str = ""
    trust_password: str = field(default="", repr=False)


class Rules(NamedTuple):
    """Versions and ciphers; empty: TLS 1.2 and newer, OpenSSL's own."""

    protocols_key: str = "tlsProtocols"
    protocols: tuple[str, ...] = ()
    ciphers_key: str = "tlsCiphers"
    ciphers: tuple[str, ...] = ()


#: Versions by Pulsar's names.
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
#: Known, and broken.
OLD_PROTOCOLS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")


def check_protocols(rules: Rules) -> tuple[str, ...]:
    """The versions to speak, oldest first; raises ConfigurationError."""
    for name in rules.protocols:
        if name in OLD_PROTOCOLS:
            raise ConfigurationError(
                f"{rules.protocols_key}={','.join(rules.protocols)}: {name} is broken, and not spoken; expected "
                f"{' or '.join(PROTOCOLS)}"
            )
        if name not in PROTOCOLS:
            raise ConfigurationError(
                f"{rules.protocols_key}={','.join(rules.protocols)}: {name} is no version of TLS; expected "
                f"{' or '.join(PROTOCOLS)}"
            )
    return tuple(name for name in PROTOCOLS if name in rules.protocols) or PROTOCOLS


#: Names of TLS 1.3's suites, which say nothing of how keys are agreed on.
TLS13_SUITES: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)


def openssl_cipher(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2 that Java has by its registered one; any other name as it is.

    >>> openssl_cipher("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    'ECDHE-RSA-AES256-GCM-SHA384'
    """
    agreement, separator, rest = name.removeprefix("TLS_").partition("_WITH_")
    if not name.startswith("TLS_") or not separator:
        return name
    words = rest.split("_")
    if words[:2] == ["CHACHA20", "POLY1305"]:
        parts = ["CHACHA20", "POLY1305"]
    else:
        # AES_256_GCM_SHA384 is AES256-GCM-SHA384, and AES_128_CBC_SHA is AES128-SHA.
        parts = ["".join(words[:2]), *(word for word in words[2:] if word != "CBC")]
    return "-".join([*([] if agreement == "RSA" else agreement.split("_")), *parts])
