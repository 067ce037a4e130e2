"""OpenSSL's contexts of a server and of a client, made of one reading of the files."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError
from geminga.runtime.tls.material import Identity, load_identity, read_identity, read_trust, reason_of, utc_now
from geminga.runtime.tls.settings import (
    TLS13_SUITES,
    Material,
    PeerCertificate,
    Rules,
    check_protocols,
    openssl_cipher,
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class Made(NamedTuple):
    """A context, and whose certificate it shows (None: nobody's)."""

    context: ssl.SSLContext
    identity: Identity | None


def server_context(material: Material, rules: Rules, peers: PeerCertificate, now: datetime | None = None) -> Made:
    """Of a server; ``now``: for the certificate's dates, None is the clock's. Raises ConfigurationError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply_rules(context, rules)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    identity = read_identity(material, now or utc_now())
    load_identity(context, identity, material.certificate)
    if peers is not PeerCertificate.UNASKED:
        if material.trust.path:
            load_trust(context, material)
        elif peers is PeerCertificate.REQUIRED:
            raise ConfigurationError(
                f"{material.trust.key} is not set: clients must show a certificate, and nobody is named that issues "
                "them; expected a PEM file of certificates to trust"
            )
        if material.trust.path:
            required = peers is PeerCertificate.REQUIRED
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return Made(context, identity)


def choose_by_name(context: ssl.SSLContext, by_name: Mapping[str, ssl.SSLContext]) -> None:
    """A client that asks ``context`` for a name (SNI) is shown the certificate of that name's; any other, its own.

    Names are in small letters; ``*.example.org`` is any one label before that. The contexts must be alike in all but
    the certificate: what clients must show remains that of ``context``, whom to trust for it is that of the other.
    """

    def choose(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        asked = (name or "").lower().rstrip(".")
        found = by_name.get(asked) or by_name.get(f"*.{asked.partition('.')[2]}")
        if found is not None:
            connection.context = found

    context.sni_callback = choose


def client_context(
    material: Material,
    rules: Rules,
    *,
    checks_server: bool = True,
    checks_name: bool = True,
    now: datetime | None = None,
) -> Made:
    """Of a client; without ``checks_server`` whoever answers is taken. Raises ConfigurationError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _apply_rules(context, rules)
    if not checks_server:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = checks_name
        if material.trust.path:
            load_trust(context, material)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    identity = None
    if material.certificate.path:
        identity = read_identity(material, now or utc_now())
        load_identity(context, identity, material.certificate)
    elif material.private_key.path:
        raise ConfigurationError(f"{material.private_key}: a key alone; expected {material.certificate.key} with it")
    return Made(context, identity)


def load_trust(context: ssl.SSLContext, material: Material) -> None:
    """These certificates alone are trusted, with whom they signed; raises ConfigurationError."""
    text = read_trust(material.trust, material.trust_password_key, material.trust_password)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"{material.trust}: {reason_of(error)}; expected certificates to trust") from error
    # A certificate that is named itself is trusted, whoever signed it: as in Java.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def _apply_rules(context: ssl.SSLContext, rules: Rules) -> None:
    versions = check_protocols(rules)
    old = [openssl_cipher(name) for name in rules.ciphers if name not in TLS13_SUITES]
    for name in old:
        _set_ciphers(context, name, rules)
    if old:
        _set_ciphers(context, ":".join(old), rules)
    if rules.ciphers:
        # Who lists suites lists those of all versions: without one of a version it is not spoken.
        has_new = len(old) < len(rules.ciphers)
        versions = tuple(name for name in versions if (has_new if name == "TLSv1.3" else old))
        if not versions:
            raise ConfigurationError(
                f"{rules.ciphers_key}={','.join(rules.ciphers)}: none of them is of {rules.protocols_key}="
                f"{','.join(rules.protocols)}"
            )
    context.minimum_version, context.maximum_version = _VERSIONS[versions[0]], _VERSIONS[versions[-1]]


def _set_ciphers(context: ssl.SSLContext, names: str, rules: Rules) -> None:
    try:
        context.set_ciphers(names)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{rules.ciphers_key}={','.join(rules.ciphers)}: {names} is not known to {ssl.OPENSSL_VERSION}; expected "
            "names as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 or ECDHE-RSA-AES256-GCM-SHA384"
        ) from error
