{{- define "lock-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lock-exporter.fullname" -}}
{{- $name := include "lock-exporter.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lock-exporter.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- /* What never changes in the life of a release. */}}
{{- define "lock-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lock-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lock-exporter.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "lock-exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: metrics
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "lock-exporter.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "lock-exporter.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "lock-exporter.image" -}}
{{- $image := .Values.image }}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "lock-exporter.secretFolder" -}}
/etc/lock-exporter/secrets
{{- end }}

{{- /* The configuration file: references to Secrets become paths below the folder they are mounted in. */}}
{{- define "lock-exporter.config" -}}
{{- $folder := include "lock-exporter.secretFolder" . }}
{{- $config := deepCopy .Values.config }}
{{- range $target := $config.targets }}
{{- with $target.restic }}
{{- with .passwordSecret }}
{{- $_ := set $target.restic "password_file" (printf "%s/%s/%s" $folder .name .key) }}
{{- end }}
{{- with .envFromSecret }}
{{- $_ := set $target.restic "env_dir" (printf "%s/%s" $folder .) }}
{{- end }}
{{- $_ := unset $target.restic "passwordSecret" }}
{{- $_ := unset $target.restic "envFromSecret" }}
{{- end }}
{{- end }}
{{- tpl (toYaml $config) . }}
{{- end }}

{{- /* Names of all Secrets that targets refer to, as a YAML list without duplicates. */}}
{{- define "lock-exporter.secretNames" -}}
{{- $names := list }}
{{- range .Values.config.targets }}
{{- with .restic }}
{{- with .passwordSecret }}{{ $names = append $names .name }}{{ end }}
{{- with .envFromSecret }}{{ $names = append $names . }}{{ end }}
{{- end }}
{{- end }}
{{- $names | uniq | sortAlpha | toYaml }}
{{- end }}

{{- define "lock-exporter.ownConfig" -}}
{{- if not (or .Values.existingConfigMap .Values.existingConfigSecret) }}true{{ end }}
{{- end }}

{{- /* "90s" or "2m" in seconds. */}}
{{- define "lock-exporter.seconds" -}}
{{- if hasSuffix "m" . }}{{ mul 60 (trimSuffix "m" . | int) }}{{ else }}{{ trimSuffix "s" . }}{{ end }}
{{- end }}
