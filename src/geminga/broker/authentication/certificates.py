"""Pulsar's ``AuthenticationProviderTls``: the subject of the certificate that TLS verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.access.ports import Labels
from geminga.broker.authentication.ports import RefusedError
from geminga.security.certificate_role import role_of_subject, subject_of


class CertificateProvider:
    """See the module. A connection is not cut when its certificate ends, as in Pulsar: TLS looked at its beginning."""

    name = "AuthenticationProviderTls"
    method = "tls"

    def fits(self, credentials: Credentials) -> bool:
        """There is a certificate."""
        return credentials.certificate is not None

    def metrics(self) -> Iterable[tuple[Labels, Mapping[str, float]]]:
        """None of its own."""
        return ()

    def prove(self, credentials: Credentials, source: str, *, in_http: bool) -> Known:
        """At once. Raises RefusedError."""
        if credentials.certificate is None:
            raise RefusedError("INVALID_CERTS", "Failed to get TLS certificates from client")
        try:
            subject = subject_of(credentials.certificate)
        except ValueError as error:
            raise RefusedError("INVALID_CERTS", f"{error}") from None
        try:
            return Known(role_of_subject(subject))
        except ValueError as error:
            raise RefusedError("INVALID_CN", f"{error}") from None
