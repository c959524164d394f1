{{- define "lock-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* [name, length]: what is too long ends in a hash, so that two long names stay two names. */}}
{{- define "lock-exporter.cut" -}}
{{- $name := first . }}
{{- $length := last . | int }}
{{- if gt (len $name) $length }}
{{- $name = printf "%s-%s" (trunc (sub $length 9 | int) $name | trimSuffix "-") (sha256sum $name | trunc 8) }}
{{- end }}
{{- trimSuffix "-" $name }}
{{- end }}

{{- /*
The name of the workload and of what belongs to it: a DNS label, since a Service has it. A StatefulSet's
is shorter: Kubernetes puts it, with a hash, into a label of its pods.
*/}}
{{- define "lock-exporter.fullname" -}}
{{- $name := include "lock-exporter.name" . }}
{{- $full := printf "%s-%s" .Release.Name $name }}
{{- if .Values.fullnameOverride }}
{{- $full = .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- $full = .Release.Name }}
{{- end }}
{{- include "lock-exporter.cut" (list ($full | replace "." "-") (ternary 52 63 (eq .Values.kind "StatefulSet"))) }}
{{- end }}

{{- /* [root, "suffix"]: the full name with a suffix that no cut takes away. */}}
{{- define "lock-exporter.nameWith" -}}
{{- $suffix := last . }}
{{- $full := include "lock-exporter.fullname" (first .) }}
{{- printf "%s-%s" (include "lock-exporter.cut" (list $full (sub 62 (len $suffix)))) $suffix }}
{{- end }}

{{- define "lock-exporter.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- /* What never changes in the life of a release. */}}
{{- define "lock-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lock-exporter.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* [root, more labels]: the labels of an object; the chart's own win. */}}
{{- define "lock-exporter.labelsWith" -}}
{{- $root := first . }}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/name" (include "lock-exporter.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/component" "metrics" }}
{{- if $root.Values.releaseLabel }}
{{- $_ := set $labels "release" $root.Release.Name }}
{{- end }}
{{- merge $labels (default dict (last .)) (default dict $root.Values.commonLabels) | toYaml }}
{{- end }}

{{- define "lock-exporter.labels" -}}
{{- include "lock-exporter.labelsWith" (list . dict) }}
{{- end }}

{{- /* [root, name, namespace, labels, annotations] */}}
{{- define "lock-exporter.metadata" -}}
{{- $root := first . -}}
name: {{ index . 1 | quote }}
namespace: {{ default (include "lock-exporter.namespace" $root) (index . 2) | quote }}
labels: {{- include "lock-exporter.labelsWith" (list $root (index . 3)) | nindent 2 }}
{{- with index . 4 }}
annotations: {{- toYaml . | nindent 2 }}
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
{{- with default $image.registry .Values.global.imageRegistry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "lock-exporter.pullSecrets" -}}
{{- $secrets := list }}
{{- range concat (default list .Values.global.imagePullSecrets) (default list .Values.imagePullSecrets) }}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) }}
{{- end }}
{{- with $secrets | uniq }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
