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
{{- $sections := dict }}
{{- range $key, $value := .Values.settings }}
{{- if kindIs "map" $value }}{{ $_ := set $sections $key $value }}{{ else }}
{{ $key }} = {{ include "sandur.value" $value }}
{{- end }}
{{- end }}
host = "0.0.0.0"
port = 8181
log_format = "json"
metrics_host = "0.0.0.0"
metrics_port = {{ int .Values.metrics.port }}
{{- if .Values.grpc.enabled }}{{ $given := get $sections "grpc" | default dict }}{{ $_ := set $sections "grpc" (merge (dict "port" .Values.grpc.port) $given) }}{{ end }}
{{- range $name, $section := $sections }}

[{{ $name }}]
{{- range $key, $value := $section }}
{{ $key }} = {{ include "sandur.value" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- define "sandur.value" -}}
{{- if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}
