{{/* Parts that all pods share. */}}

{{/* configData: keys as Apache's chart takes them (PULSAR_PREFIX_key or key); what is for a Java VM asks for nothing here. */}}
{{- define "geminga.settings" -}}
{{- range $key, $value := . }}
{{- if not (has $key (list "PULSAR_MEM" "PULSAR_GC" "PULSAR_EXTRA_OPTS" "BOOKIE_MEM" "BOOKIE_GC")) }}
GEMINGA_{{ trimPrefix "PULSAR_PREFIX_" $key }}: {{ $value | toString | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- define "geminga.podSettings" -}}
{{- $root := index . 0 -}}{{- $own := index . 2 -}}
serviceAccountName: {{ include "geminga.fullname" $root }}
automountServiceAccountToken: false
# Or services named GEMINGA-... would be variables of the environment that look like settings.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ $own.gracePeriod }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ index . 3 }}
  runAsGroup: {{ index . 4 }}
  fsGroup: {{ index . 4 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.images.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $own.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and $own.affinity $root.Values.affinity.anti_affinity $own.affinity.anti_affinity }}
affinity:
  podAntiAffinity:
    {{- $type := $own.affinity.type | default $root.Values.affinity.type }}
    {{- if hasPrefix "required" $type }}
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: {{ $own.affinity.anti_affinity_topology_key }}
        labelSelector:
          matchLabels:
            {{- include "geminga.selector" . | nindent 12 }}
    {{- else }}
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: {{ $own.affinity.anti_affinity_topology_key }}
          labelSelector:
            matchLabels:
              {{- include "geminga.selector" . | nindent 14 }}
    {{- end }}
{{- end }}
{{- end }}

{{- define "geminga.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "geminga.podMetadata" -}}
{{- $own := index . 2 -}}
labels:
  {{- include "geminga.selector" . | nindent 2 }}
{{- if or $own.annotations $own.restartPodsOnConfigMapChange }}
annotations:
  {{- with $own.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if $own.restartPodsOnConfigMapChange }}
  checksum/config: {{ index . 3 | sha256sum }}
  {{- end }}
{{- end }}
{{- end }}

{{/* (list path-while-it-lives path-while-it-is-ready port scheme) */}}
{{- define "geminga.probes" -}}
{{- $get := printf "{path: %s, port: %s, scheme: %s}" (index . 0) (index . 2) (index . 3) -}}
{{- $ready := printf "{path: %s, port: %s, scheme: %s}" (index . 1) (index . 2) (index . 3) -}}
startupProbe:
  httpGet: {{ $get }}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
livenessProbe:
  httpGet: {{ $get }}
  periodSeconds: 15
  timeoutSeconds: 10
  failureThreshold: 4
readinessProbe:
  httpGet: {{ $ready }}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}

{{/* A claim of a volume. */}}
{{- define "geminga.claim" -}}
metadata:
  name: {{ .name }}
spec:
  accessModes: [ReadWriteOnce]
  {{- with .storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests: {storage: {{ .size }}}
{{- end }}

{{/* Waits until the cluster's node is there: (list $ path) */}}
{{- define "geminga.waits" -}}
{{- $root := index . 0 -}}
- name: wait
  image: {{ include "geminga.image" $root }}
  imagePullPolicy: {{ $root.Values.defaultPullPolicy }}
  command: [bash, -c]
  args:
    - >-
      until bin/pulsar zookeeper-shell -server {{ include "geminga.zookeepers" $root }} get
      {{ $root.Values.metadataPrefix }}{{ index . 1 }}; do sleep 1; done
  {{- include "geminga.containerSecurity" $root | nindent 2 }}
  resources:
    {{- toYaml $root.Values.pulsar_metadata.resources | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
{{- end }}
