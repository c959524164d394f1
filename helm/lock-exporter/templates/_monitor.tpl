{{- /* [root, monitor's values, what to put before its relabelings]: one endpoint to scrape. */}}
{{- define "lock-exporter.endpoint" -}}
{{- $root := first . }}
{{- $monitor := index . 1 -}}
path: {{ default (include "lock-exporter.metricsPath" $root) $monitor.path | quote }}
interval: {{ $monitor.interval }}
scrapeTimeout: {{ $monitor.scrapeTimeout }}
scheme: {{ default (include "lock-exporter.scheme" $root) $monitor.scheme }}
honorLabels: {{ $monitor.honorLabels }}
{{- if not (kindIs "invalid" $monitor.enableHttp2) }}
enableHttp2: {{ $monitor.enableHttp2 }}
{{- end }}
{{- range $key := list "tlsConfig" "basicAuth" "authorization" "metricRelabelings" }}
{{- with index $monitor $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with concat (last .) (default list $monitor.relabelings) }}
relabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* [root, monitor's values]: what a ServiceMonitor and a PodMonitor have in common. */}}
{{- define "lock-exporter.monitor" -}}
{{- $root := first . }}
{{- $monitor := last . -}}
jobLabel: {{ $monitor.jobLabel | quote }}
{{- range $key := list "targetLabels" "podTargetLabels" "scrapeProtocols" }}
{{- with index $monitor $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- range $key := list "sampleLimit" "targetLimit" "labelLimit" "labelNameLengthLimit" "labelValueLengthLimit" }}
{{- with index $monitor $key }}
{{ $key }}: {{ . | int64 }}
{{- end }}
{{- end }}
namespaceSelector:
  matchNames: [{{ include "lock-exporter.namespace" $root | quote }}]
selector:
  matchLabels: {{- include "lock-exporter.selectorLabels" $root | nindent 4 }}
{{- end }}
