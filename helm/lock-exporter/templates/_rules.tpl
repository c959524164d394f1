{{- /*
The rules of rules.yml with this release's parameters. rules.yml and parameters.json are the files of the
repository's folder alerts, unchanged; annotations hold templates of Prometheus, so the rules are read as
data and never as a template of Helm. alerts/render.py does the same without Helm: a test compares both.
*/}}
{{- define "lock-exporter.ruleGroups" -}}
{{- $values := .Values.prometheusRule }}
{{- $job := default (include "lock-exporter.name" .) $values.jobName }}
{{- $file := .Files.Get "rules.yml" | fromYaml }}
{{- $rows := .Files.Get "parameters.json" | fromJson }}
{{- $groups := list }}
{{- range $group := $file.groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- $_ := set $rule "expr" (include "lock-exporter.expr" (dict "expr" $rule.expr "values" $values "rows" $rows "job" $job)) }}
{{- if not $rule.alert }}
{{- $rules = append $rules $rule }}
{{- else if not (get (default dict $values.disabled) $rule.alert) }}
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

{{- /* One expression with the job, the dropped labels and the thresholds of the values. */}}
{{- define "lock-exporter.expr" -}}
{{- $values := .values }}
{{- $expr := .expr | replace (printf "job=%q" .rows.jobName.default) (printf "job=%q" .job) }}
{{- $dropped := join ", " .rows.droppedLabels.default }}
{{- $instance := concat (list "instance") $values.droppedLabels }}
{{- $expr = replace (printf "instance, %s" $dropped) (join ", " $instance) $expr }}
{{- $expr = replace (printf "(%s)" $dropped) (printf "(%s)" (join ", " $values.droppedLabels)) $expr }}
{{- range $name, $row := .rows }}
{{- range $site := $row.sites }}
{{- $from := replace "@" (toString $row.default) $site }}
{{- $expr = replace $from (replace "@" (toString (index $values $name)) $site) $expr }}
{{- end }}
{{- end }}
{{- $expr }}
{{- end }}

{{- /* One alert with the times, the severity, the runbook and the labels of the values. */}}
{{- define "lock-exporter.alert" -}}
{{- $rule := deepCopy .rule }}
{{- with get (default dict .values.forOverrides) $rule.alert }}
{{- $_ := set $rule "for" . }}
{{- end }}
{{- with get (default dict .values.keepFiringForOverrides) $rule.alert }}
{{- $_ := set $rule "keep_firing_for" . }}
{{- end }}
{{- with get (default dict .values.severityOverrides) $rule.alert }}
{{- $_ := set $rule.labels "severity" . }}
{{- end }}
{{- if hasKey $rule.labels "job" }}
{{- $_ := set $rule.labels "job" .job }}
{{- end }}
{{- range $name, $value := .values.extraAlertLabels }}
{{- $_ := set $rule.labels $name $value }}
{{- end }}
{{- $_ := set $rule.annotations "runbook_url" (replace "%s" (lower $rule.alert) .values.runbookUrlPattern) }}
{{- toYaml $rule }}
{{- end }}
