{{/* Settings of each server, as variables GEMINGA_key; configData wins. (list $ "broker") */}}
{{- define "geminga.data" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- $ours := fromYaml (include (printf "geminga.%s" $role) $root) -}}
{{- $theirs := fromYaml (include "geminga.settings" (index $root.Values $role).configData) -}}
{{- mergeOverwrite $ours $theirs | toYaml }}
{{- end }}

{{- define "geminga.bookkeeper" -}}
GEMINGA_metadataServiceUri: {{ include "geminga.store" . }}
GEMINGA_bookiePort: {{ .Values.bookkeeper.ports.bookie | quote }}
GEMINGA_httpServerPort: {{ .Values.bookkeeper.ports.http | quote }}
GEMINGA_journalDirectories: /pulsar/data/bookkeeper/journal
GEMINGA_ledgerDirectories: /pulsar/data/bookkeeper/ledgers
GEMINGA_gemingaAllowOpen: "true"
{{- if include "geminga.tls" (list . "bookie") }}
{{ include "geminga.bookieCertificates" . }}
{{- end }}
{{- end }}

{{- define "geminga.autorecovery" -}}
GEMINGA_metadataServiceUri: {{ include "geminga.store" . }}
GEMINGA_httpServerPort: {{ .Values.autorecovery.ports.http | quote }}
GEMINGA_gemingaAllowOpen: "true"
{{- if include "geminga.tls" (list . "bookie") }}
{{ include "geminga.bookieCertificates" . }}
GEMINGA_tlsHostnameVerificationEnabled: "true"
{{- end }}
{{- end }}

{{/* Names by which HTTP may be asked, beside addresses and the pod's own. */}}
{{- define "geminga.hosts" -}}
{{- $root := index . 0 -}}{{- $name := printf "%s-%s" (include "geminga.fullname" $root) (index . 1) -}}
{{ $name }},{{ $name }}.{{ $root.Release.Namespace }},{{ $name }}.{{ $root.Release.Namespace }}.svc,{{ include "geminga.host" . }}
{{- end }}

{{- define "geminga.broker" -}}
{{- $ports := .Values.broker.ports -}}
GEMINGA_metadataStoreUrl: {{ include "geminga.store" . }}
GEMINGA_configurationMetadataStoreUrl: {{ include "geminga.configurationStore" . }}
GEMINGA_clusterName: {{ include "geminga.cluster" . }}
GEMINGA_statusFilePath: /tmp/status
GEMINGA_gemingaHttpAllowedHosts: {{ include "geminga.hosts" (list . "broker") }}
{{- if include "geminga.tls" (list . "broker") }}
GEMINGA_brokerServicePort: ""
GEMINGA_webServicePort: ""
GEMINGA_brokerServicePortTls: {{ $ports.pulsarssl | quote }}
GEMINGA_webServicePortTls: {{ $ports.https | quote }}
{{ include "geminga.portCertificates" . }}
GEMINGA_brokerClientTlsEnabled: "true"
GEMINGA_brokerClientTrustCertsFilePath: /pulsar/certs/ca.crt
GEMINGA_tlsHostnameVerificationEnabled: "true"
{{- else }}
GEMINGA_brokerServicePort: {{ $ports.pulsar | quote }}
GEMINGA_webServicePort: {{ $ports.http | quote }}
{{- end }}
{{- if include "geminga.tls" (list . "bookie") }}
GEMINGA_bookkeeperTLSClientAuthentication: "true"
GEMINGA_bookkeeperTLSTrustCertsFilePath: /pulsar/certs/ca.crt
GEMINGA_bookkeeperTLSCertificateFilePath: /pulsar/certs/tls.crt
GEMINGA_bookkeeperTLSKeyFilePath: /pulsar/certs/tls.key
GEMINGA_bookkeeper_tlsHostnameVerificationEnabled: "true"
{{- end }}
{{- include "geminga.authSettings" (list . "broker") }}
{{- end }}

{{- define "geminga.proxy" -}}
{{- $host := include "geminga.host" (list . "broker") -}}
{{- $ports := .Values.broker.ports -}}{{- $own := .Values.proxy.ports -}}
GEMINGA_brokerProxyAllowedHostNames: "{{ $host }},*.{{ include "geminga.host" (list . "broker-headless") }}"
GEMINGA_gemingaHttpAllowedHosts: {{ include "geminga.hosts" (list . "proxy") }}
{{- if include "geminga.tls" (list . "broker") }}
GEMINGA_brokerServiceURLTLS: pulsar+ssl://{{ $host }}:{{ $ports.pulsarssl }}
GEMINGA_brokerWebServiceURLTLS: https://{{ $host }}:{{ $ports.https }}
GEMINGA_brokerProxyAllowedTargetPorts: {{ $ports.pulsarssl | quote }}
GEMINGA_tlsEnabledWithBroker: "true"
GEMINGA_brokerClientTrustCertsFilePath: /pulsar/certs/ca.crt
GEMINGA_tlsHostnameVerificationEnabled: "true"
{{- else }}
GEMINGA_brokerServiceURL: pulsar://{{ $host }}:{{ $ports.pulsar }}
GEMINGA_brokerWebServiceURL: http://{{ $host }}:{{ $ports.http }}
GEMINGA_brokerProxyAllowedTargetPorts: {{ $ports.pulsar | quote }}
{{- end }}
{{- if include "geminga.tls" (list . "proxy") }}
GEMINGA_servicePort: ""
GEMINGA_webServicePort: ""
GEMINGA_servicePortTls: {{ $own.pulsarssl | quote }}
GEMINGA_webServicePortTls: {{ $own.https | quote }}
{{ include "geminga.portCertificates" . }}
{{- else }}
GEMINGA_servicePort: {{ $own.pulsar | quote }}
GEMINGA_webServicePort: {{ $own.http | quote }}
{{- end }}
{{- if .Values.proxy.podMonitor.enabled }}
GEMINGA_authenticateMetricsEndpoint: "false"
{{- end }}
{{- include "geminga.authSettings" (list . "proxy") }}
{{- end }}

{{- define "geminga.standalone" -}}
GEMINGA_clusterName: {{ include "geminga.cluster" . }}
GEMINGA_brokerServicePort: {{ .Values.standalone.ports.pulsar | quote }}
GEMINGA_webServicePort: {{ .Values.standalone.ports.http | quote }}
GEMINGA_gemingaHttpAllowedHosts: {{ include "geminga.hosts" (list . "standalone") }}
GEMINGA_advertisedAddress: {{ include "geminga.host" (list . "standalone") }}
GEMINGA_statusFilePath: /tmp/status
{{- include "geminga.authSettings" (list . "standalone") }}
{{- end }}

{{- define "geminga.zoo" -}}
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/data
clientPort={{ .Values.zookeeper.ports.client }}
admin.enableServer=false
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
4lw.commands.whitelist=ruok
{{- $ports := .Values.zookeeper.ports }}
{{- if gt (int .Values.zookeeper.replicaCount) 1 }}
{{- range $n := until (int .Values.zookeeper.replicaCount) }}
server.{{ add1 $n }}={{ include "geminga.fullname" $ }}-zookeeper-{{ $n }}.{{ include "geminga.host" (list $ "zookeeper") }}:{{ $ports.follower }}:{{ $ports.leaderElection }}
{{- end }}
# A server's own name is known to others only when it serves.
quorumListenOnAllIPs=true
{{- end }}
{{- range $key, $value := .Values.zookeeper.configData }}
{{ $key }}={{ $value }}
{{- end }}
{{- end }}
