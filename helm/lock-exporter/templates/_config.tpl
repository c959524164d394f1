{{- define "lock-exporter.folder" -}}
/etc/lock-exporter
{{- end }}

{{- /* The configuration file: references to Secrets become paths below the folder they are mounted in. */}}
{{- define "lock-exporter.config" -}}
{{- $folder := printf "%s/secrets" (include "lock-exporter.folder" .) }}
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

{{- define "lock-exporter.ownConfig" -}}
{{- if not (or .Values.existingConfigMap .Values.existingConfigSecret) }}true{{ end }}
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

{{- define "lock-exporter.web" -}}
{{- if or .Values.webConfig.config .Values.webConfig.existingSecret .Values.webConfig.tlsSecret }}true{{ end }}
{{- end }}

{{- define "lock-exporter.ownWeb" -}}
{{- if and (include "lock-exporter.web" .) (not .Values.webConfig.existingSecret) }}true{{ end }}
{{- end }}

{{- /* The web configuration file. */}}
{{- define "lock-exporter.webConfig" -}}
{{- $config := deepCopy .Values.webConfig.config }}
{{- if .Values.webConfig.tlsSecret }}
{{- $folder := printf "%s/tls" (include "lock-exporter.folder" .) }}
{{- $files := dict "cert_file" (printf "%s/tls.crt" $folder) "key_file" (printf "%s/tls.key" $folder) }}
{{- $_ := set $config "tls_server_config" (merge (default dict $config.tls_server_config) $files) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- define "lock-exporter.scheme" -}}
{{- $web := .Values.webConfig }}
{{- default (ternary "https" "http" (not (not (or $web.tlsSecret $web.config.tls_server_config)))) $web.scheme }}
{{- end }}

{{- /* The port for probes that answers without TLS and password, if there is one. */}}
{{- define "lock-exporter.probePort" -}}
{{- if and (include "lock-exporter.web" .) .Values.webConfig.probePort }}{{ .Values.webConfig.probePort }}{{ end }}
{{- end }}

{{- define "lock-exporter.metricsPath" -}}
{{- printf "%s/metrics" (trimSuffix "/" (default "" .Values.web.routePrefix)) }}
{{- end }}

{{- define "lock-exporter.ownSsh" -}}
{{- if or .Values.ssh.config .Values.ssh.knownHosts }}true{{ end }}
{{- end }}

{{- define "lock-exporter.ssh" -}}
{{- if or .Values.ssh.config .Values.ssh.knownHosts .Values.ssh.existingSecret }}true{{ end }}
{{- end }}

{{- /* Whether the processes of the node are seen, and not only those of the pod. */}}
{{- define "lock-exporter.seesNode" -}}
{{- if and (eq .Values.kind "DaemonSet") (or .Values.daemonSet.hostProc .Values.daemonSet.hostPID) }}true{{ end }}
{{- end }}

{{- /* Changes whenever a file does that this chart makes and the exporter reads at its start. */}}
{{- define "lock-exporter.checksum" -}}
{{- $files := list }}
{{- if include "lock-exporter.ownConfig" . }}
{{- $files = append $files (include "lock-exporter.config" .) }}
{{- end }}
{{- if include "lock-exporter.ownWeb" . }}
{{- $files = append $files (include "lock-exporter.webConfig" .) }}
{{- end }}
{{- toJson (concat $files (list .Values.ssh.config .Values.ssh.knownHosts)) | sha256sum }}
{{- end }}

{{- /* A duration of Prometheus, such as 90s or 1m30s, in milliseconds. */}}
{{- define "lock-exporter.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 }}
{{- $total := 0 }}
{{- range regexFindAll "[0-9]+(ms|[smhdwy])" . -1 }}
{{- $total = add $total (mul (regexFind "[0-9]+" . | int64) (index $units (regexFind "[a-z]+" .) | int64)) }}
{{- end }}
{{- $total }}
{{- end }}
