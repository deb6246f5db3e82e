{{- define "sandur.name" -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- end }}
{{- define "sandur.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "sandur.labels" -}}
{{ include "sandur.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "sandur.account" -}}
{{ .Values.serviceAccount.name | default (ternary (include "sandur.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}
{{- define "sandur.secret" -}}
{{ .Values.secrets.existing | default (ternary (include "sandur.name" .) "" (not (empty .Values.secrets.values))) }}
{{- end }}
{{- define "sandur.environment" -}}
env:  # The image sets this variable, and the environment overrides the file.
  - { name: SANDUR_LOG_FORMAT, value: {{ .Values.settings.log_format | default "json" }} }
{{- with include "sandur.secret" . }}
envFrom:
  - secretRef: { name: {{ . }} }
{{- end }}
{{- end }}
{{- define "sandur.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}
{{- define "sandur.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end }}
{{- define "sandur.toml" -}}
{{- range $key, $place := dict "host" "service" "port" "service.port" "metrics_host" "metrics.port" "metrics_port" "metrics.port" }}
{{- if hasKey $.Values.settings $key }}{{ fail (printf "settings.%s: the chart sets it; change %s instead" $key $place) }}{{ end }}
{{- end }}
{{- $fixed := dict "host" "0.0.0.0" "port" 8181 "metrics_host" "0.0.0.0" "metrics_port" .Values.metrics.port }}
{{- $settings := merge $fixed (deepCopy .Values.settings) }}
{{- if .Values.grpc.enabled }}
{{- $given := .Values.settings.grpc | default dict }}
{{- if hasKey $given "port" }}{{ fail "settings.grpc.port: the chart sets it; change grpc.port instead" }}{{ end }}
{{- if not (or $given.certificate $given.allow_plaintext) }}
{{- fail "grpc.enabled needs settings.grpc.certificate and private_key (files of extraVolumes), or settings.grpc.allow_plaintext" }}
{{- end }}
{{- $_ := set $settings "grpc" (merge (dict "port" .Values.grpc.port) $given) }}
{{- end }}
{{- $sections := dict }}
{{- range $key, $value := $settings }}
{{- if kindIs "map" $value }}{{ $_ := set $sections $key $value }}{{ else if not (kindIs "invalid" $value) }}
{{ $key }} = {{ include "sandur.value" $value }}
{{- end }}
{{- end }}
{{- range $name, $section := $sections }}

[{{ $name }}]
{{- range $key, $value := $section }}
{{- if not (kindIs "invalid" $value) }}
{{ toJson $key }} = {{ include "sandur.value" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- /* A value in TOML, on one line: maps are inline tables, and whole numbers are no floats. */ -}}
{{- define "sandur.value" -}}
{{- if kindIs "map" . }}
{{- $pairs := list }}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}{{ $pairs = append $pairs (printf "%s = %s" (toJson $key) (include "sandur.value" $value)) }}{{ end }}
{{- end }}{ {{- join ", " $pairs -}} }
{{- else if kindIs "slice" . }}
{{- $values := list }}
{{- range . }}{{ $values = append $values (include "sandur.value" .) }}{{ end }}[{{ join ", " $values }}]
{{- else if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else }}{{ toJson . }}
{{- end }}
{{- end }}
{{- /* What every pod mounts; docs/deployment.md says what for. */ -}}
{{- define "sandur.mounts" -}}
- { name: config, mountPath: /etc/sandur, readOnly: true }
- { name: tmp, mountPath: /tmp }
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "sandur.volumes" -}}
- { name: config, configMap: { name: {{ include "sandur.name" . }} } }
- { name: tmp, emptyDir: {} }
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- /* Where pods may run: nodeSelector, tolerations and affinity of the given values. */ -}}
{{- define "sandur.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $ $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
