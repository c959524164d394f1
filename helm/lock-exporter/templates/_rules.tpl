{{- /*
The rules of rules.yml with this release's parameters. rules.yml is the file of the repository's folder
alerts, unchanged; its annotations hold templates of Prometheus, so it is read as data and never as a
template of Helm.
*/}}
{{- define "lock-exporter.ruleGroups" -}}
{{- $values := .Values.prometheusRule }}
{{- $job := default (include "lock-exporter.name" .) $values.jobName }}
{{- $file := .Files.Get "rules.yml" | fromYaml }}
{{- $groups := list }}
{{- range $group := $file.groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- if not $rule.alert }}
{{- $rules = append $rules $rule }}
{{- else if not (index $values.disabled $rule.alert) }}
{{- $rule = include "lock-exporter.alert" (dict "rule" $rule "values" $values "job" $job) | fromYaml }}
{{- $sealed := $values.stuckSealedSeverity }}
{{- if and (eq $rule.alert "LockStuckShared") (ne $sealed $rule.labels.severity) }}
{{- $other := deepCopy $rule }}
{{- $_ := set $rule "expr" (replace "mode!=\"exclusive\"" "mode=\"shared\"" $rule.expr) }}
{{- $_ := set $other "expr" (replace "mode!=\"exclusive\"" "mode=\"unknown\"" $other.expr) }}
{{- $_ := set $other.labels "severity" $sealed }}
{{- $rules = append $rules $rule }}
{{- $rules = append $rules $other }}
{{- else }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $_ := set $group "rules" $rules }}
{{- $groups = append $groups $group }}
{{- end }}
{{- end }}
{{- with $values.additionalRules }}
{{- $groups = append $groups (dict "name" "lock.additional" "rules" .) }}
{{- end }}
{{- toYaml $groups }}
{{- end }}

{{- /* One alert with the job, the freshness, the severity, the runbook and the labels of the values. */}}
{{- define "lock-exporter.alert" -}}
{{- $rule := deepCopy .rule }}
{{- $expr := $rule.expr | replace "job=\"lock-exporter\"" (printf "job=%q" .job) }}
{{- $expr = regexReplaceAll "([<>]) 900\\b" $expr (printf "${1} %d" (int .values.freshnessSeconds)) }}
{{- $_ := set $rule "expr" $expr }}
{{- with index .values.severityOverrides $rule.alert }}
{{- $_ := set $rule.labels "severity" . }}
{{- end }}
{{- if hasKey $rule.labels "job" }}
{{- $_ := set $rule.labels "job" .job }}
{{- $_ := set $rule.annotations "description" (replace "job lock-exporter" (printf "job %s" .job) $rule.annotations.description) }}
{{- end }}
{{- range $name, $value := .values.extraAlertLabels }}
{{- $_ := set $rule.labels $name $value }}
{{- end }}
{{- $_ := set $rule.annotations "runbook_url" (replace "%s" (lower $rule.alert) .values.runbookUrlPattern) }}
{{- toYaml $rule }}
{{- end }}
