{{/* Mounts and volumes of certificates and tokens, and the settings that name them. */}}
{{- define "geminga.securityMounts" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- if eq "true" (index . 2) }}
- {name: certificates, mountPath: /pulsar/certs, readOnly: true}
{{- end }}
{{- if and $root.Values.auth.authentication.enabled (has $role (list "broker" "proxy" "standalone")) }}
- {name: keys, mountPath: /pulsar/keys, readOnly: true}
- {name: token, mountPath: /pulsar/tokens, readOnly: true}
{{- end }}
{{- end }}

{{- define "geminga.securityVolumes" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $auth := $root.Values.auth -}}
{{- if eq "true" (index . 2) }}
- name: certificates
  secret: {secretName: {{ include "geminga.secret" (list $root (index . 3)) }}, defaultMode: 0440}
{{- end }}
{{- if and $auth.authentication.enabled (has $role (list "broker" "proxy" "standalone")) }}
- name: keys
  secret:
    defaultMode: 0440
    {{- if $auth.authentication.jwt.usingSecretKey }}
    secretName: {{ include "geminga.secret" (list $root "token-symmetric-key") }}
    items: [{key: SECRETKEY, path: secret.key}]
    {{- else }}
    secretName: {{ include "geminga.secret" (list $root "token-asymmetric-key") }}
    items: [{key: PUBLICKEY, path: public.key}]
    {{- end }}
- name: token
  secret:
    defaultMode: 0440
    secretName: {{ include "geminga.secret" (list $root (printf "token-%s" (index $auth.superUsers (eq $role "proxy" | ternary "proxy" "broker")))) }}
    items: [{key: TOKEN, path: token}]
{{- end }}
{{- end }}

{{/* Who clients are, and who this server is to brokers. */}}
{{- define "geminga.authSettings" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}{{- $auth := $root.Values.auth -}}
{{- if $auth.authentication.enabled }}
GEMINGA_authenticationEnabled: "true"
GEMINGA_authenticationProviders: org.apache.pulsar.broker.authentication.AuthenticationProviderToken
{{- if $auth.authentication.jwt.usingSecretKey }}
GEMINGA_tokenSecretKey: /pulsar/keys/secret.key
{{- else }}
GEMINGA_tokenPublicKey: /pulsar/keys/public.key
{{- end }}
GEMINGA_brokerClientAuthenticationPlugin: org.apache.pulsar.client.impl.auth.AuthenticationToken
GEMINGA_brokerClientAuthenticationParameters: file:///pulsar/tokens/token
{{- if ne $role "proxy" }}
GEMINGA_proxyRoles: {{ $auth.superUsers.proxy }}
{{- if $auth.authorization.enabled }}
GEMINGA_authorizationEnabled: "true"
GEMINGA_superUserRoles: {{ join "," (values $auth.superUsers | uniq | sortAlpha) }}
{{- end }}
{{- end }}
{{- else }}
GEMINGA_gemingaAllowOpen: "true"
{{- end }}
{{- end }}

{{/* Certificates of a server's ports. */}}
{{- define "geminga.portCertificates" -}}
GEMINGA_tlsCertificateFilePath: /pulsar/certs/tls.crt
GEMINGA_tlsKeyFilePath: /pulsar/certs/tls.key
GEMINGA_tlsTrustCertsFilePath: /pulsar/certs/ca.crt
{{- end }}

{{/* Certificates by which bookies and auto-recovery speak to bookies. */}}
{{- define "geminga.bookieCertificates" -}}
GEMINGA_tlsProviderFactoryClass: org.apache.bookkeeper.tls.TLSContextFactory
GEMINGA_tlsCertificatePath: /pulsar/certs/tls.crt
GEMINGA_tlsKeyStore: /pulsar/certs/tls.key
GEMINGA_tlsTrustStore: /pulsar/certs/ca.crt
GEMINGA_tlsClientAuthentication: "true"
{{- end }}
