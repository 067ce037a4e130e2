{{/* Name: port, of what a component listens on. (list $ "broker") */}}
{{- define "geminga.ports" -}}
{{- $root := index . 0 -}}{{- $role := index . 1 -}}
{{- range $name, $port := (index $root.Values $role).ports }}
{{- if not (has $role (list "broker" "proxy")) }}
{{ $name | lower | trunc 15 }}: {{ $port }}
{{- else if eq (hasSuffix "s" $name | or (hasSuffix "ssl" $name)) (eq "true" (include "geminga.tls" $)) }}
{{ $name }}: {{ $port }}
{{- end }}
{{- end }}
{{- end }}

{{/* Selector and ports of a service of a component's pods. */}}
{{- define "geminga.servicePorts" -}}
selector:
  {{- include "geminga.selector" . | nindent 2 }}
ports:
  {{- range $name, $port := include "geminga.ports" . | fromYaml }}
  - {name: {{ $name }}, port: {{ $port }}, targetPort: {{ $name }}}
  {{- end }}
{{- end }}
