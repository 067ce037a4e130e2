{{/* Names and addresses. */}}
{{- define "geminga.fullname" -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{- end }}
{{- define "geminga.cluster" -}}{{ .Values.clusterName | default (include "geminga.fullname" .) }}{{- end }}
{{- define "geminga.domain" -}}{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}{{- end }}

{{/* The host of a component's service: (list $ "broker") */}}
{{- define "geminga.host" -}}
{{- $root := index . 0 -}}
{{ include "geminga.fullname" $root }}-{{ index . 1 }}.{{ include "geminga.domain" $root }}
{{- end }}

{{/* The service by which its pods have names: clients of brokers have another one. */}}
{{- define "geminga.podService" -}}
{{ index . 1 }}{{ if eq (index . 1) "broker" }}-headless{{ end }}
{{- end }}

{{/* host:port of all ZooKeepers */}}
{{- define "geminga.zookeepers" -}}
{{- if .Values.components.zookeeper -}}
{{- $servers := list -}}
{{- range $n := until (int .Values.zookeeper.replicaCount) -}}
{{- $servers = append $servers (printf "%s-zookeeper-%d.%s:%d" (include "geminga.fullname" $) $n (include "geminga.host" (list $ "zookeeper")) (int $.Values.zookeeper.ports.client)) -}}
{{- end -}}
{{ join "," $servers }}
{{- else -}}
{{ required "pulsar_metadata.userProvidedZookeepers: host:port,... is needed where components.zookeeper is false" .Values.pulsar_metadata.userProvidedZookeepers }}
{{- end -}}
{{- end }}
{{- define "geminga.store" -}}zk:{{ include "geminga.zookeepers" . }}{{ .Values.metadataPrefix }}{{- end }}

{{/* Of what clusters share. */}}
{{- define "geminga.configurationStore" -}}
{{- with .Values.pulsar_metadata -}}
{{- if .configurationStore }}zk:{{ .configurationStore }}{{ .configurationStoreMetadataPrefix }}{{ else }}{{ include "geminga.store" $ }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "geminga.image" -}}{{ .Values.defaultPulsarImageRepository }}:{{ .Values.defaultPulsarImageTag | default .Chart.AppVersion }}{{- end }}

{{/* Labels by which pods are found: (list $ "broker") */}}
{{- define "geminga.selector" -}}
app.kubernetes.io/name: geminga
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}
{{- define "geminga.labels" -}}
{{- $root := index . 0 -}}
{{ include "geminga.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{- define "geminga.metadata" -}}
name: {{ include "geminga.fullname" (index . 0) }}-{{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "geminga.labels" . | nindent 2 }}
{{- end }}

{{/* Which links have TLS; empty: not. */}}
{{- define "geminga.tls" -}}
{{- $tls := (index . 0).Values.tls -}}
{{- if and $tls.enabled (index $tls (index . 1)).enabled }}true{{ end -}}
{{- end }}
{{- define "geminga.secret" -}}{{ include "geminga.fullname" (index . 0) }}-{{ index . 1 }}{{- end }}
