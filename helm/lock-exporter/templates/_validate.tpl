{{- /*
What a schema cannot say: values that are fine one by one and contradict each other. All problems are
told at once, each with the keys that it is about and what would be right.
*/}}
{{- define "lock-exporter.validate" -}}
{{- $problems := concat
  (include "lock-exporter.problemsOfKind" . | fromYamlArray)
  (include "lock-exporter.problemsOfNames" . | fromYamlArray)
  (include "lock-exporter.problemsOfConfig" . | fromYamlArray)
  (include "lock-exporter.problemsOfWeb" . | fromYamlArray)
  (include "lock-exporter.problemsOfMonitoring" . | fromYamlArray)
  (include "lock-exporter.problemsOfMounts" . | fromYamlArray)
  (include "lock-exporter.problemsOfExtras" . | fromYamlArray) }}
{{- if $problems }}
{{- fail (printf "\n\n- %s\n" (join "\n- " $problems)) }}
{{- end }}
{{- end }}

{{- define "lock-exporter.problemsOfKind" -}}
{{- $v := .Values }}
{{- $p := list }}
{{- if and $v.sharding.enabled (ne $v.kind "StatefulSet") }}
{{- $p = append $p (printf "sharding.enabled needs kind: StatefulSet, not %s: a shard knows its number by its pod's name" $v.kind) }}
{{- end }}
{{- if and $v.sharding.enabled (ne (int $v.replicas) 1) }}
{{- $p = append $p "replicas and sharding.enabled contradict each other: sharding.shards is the number of pods" }}
{{- end }}
{{- if eq $v.kind "DaemonSet" }}
{{- if ne (int $v.replicas) 1 }}
{{- $p = append $p "replicas has no meaning for kind: DaemonSet, which has a pod on each node" }}
{{- end }}
{{- if $v.podDisruptionBudget.enabled }}
{{- $p = append $p "podDisruptionBudget.enabled has no meaning for kind: DaemonSet, whose pods are not evicted" }}
{{- end }}
{{- if $v.persistence.enabled }}
{{- $p = append $p "persistence.enabled does not go with kind: DaemonSet: no claim belongs to a node" }}
{{- end }}
{{- end }}
{{- if eq $v.kind "StatefulSet" }}
{{- if not $v.service.enabled }}
{{- $p = append $p "kind: StatefulSet needs service.enabled" }}
{{- end }}
{{- if ne $v.service.type "ClusterIP" }}
{{- $p = append $p (printf "kind: StatefulSet has a headless Service, whose service.type is ClusterIP, not %s" $v.service.type) }}
{{- end }}
{{- if $v.persistence.existingClaim }}
{{- $p = append $p "persistence.existingClaim does not go with kind: StatefulSet: each pod has a claim of its own" }}
{{- end }}
{{- end }}
{{- if and (eq $v.kind "Deployment") $v.persistence.enabled }}
{{- if ne $v.strategy.type "Recreate" }}
{{- $p = append $p "persistence.enabled with kind: Deployment needs strategy: {type: Recreate, rollingUpdate: null}: the volume belongs to one exporter at a time" }}
{{- end }}
{{- if gt (int $v.replicas) 1 }}
{{- $p = append $p "persistence.enabled with more than one replica needs kind: StatefulSet: the volume belongs to one exporter at a time" }}
{{- end }}
{{- end }}
{{- if and (eq $v.strategy.type "Recreate") $v.strategy.rollingUpdate }}
{{- $p = append $p "strategy.rollingUpdate does not go with strategy.type: Recreate" }}
{{- end }}
{{- if and (eq $v.updateStrategy.type "OnDelete") $v.updateStrategy.rollingUpdate }}
{{- $p = append $p "updateStrategy.rollingUpdate does not go with updateStrategy.type: OnDelete" }}
{{- end }}
{{- range $key, $kind := dict "partition" "StatefulSet" "maxSurge" "DaemonSet" }}
{{- if and (hasKey (default dict $v.updateStrategy.rollingUpdate) $key) (not (has $v.kind (list $kind "Deployment"))) }}
{{- $p = append $p (printf "updateStrategy.rollingUpdate.%s is known to kind: %s only" $key $kind) }}
{{- end }}
{{- end }}
{{- with $v.podDisruptionBudget }}
{{- $min := not (kindIs "invalid" .minAvailable) }}
{{- $max := not (kindIs "invalid" .maxUnavailable) }}
{{- if and .enabled (eq $min $max) }}
{{- $p = append $p "podDisruptionBudget needs exactly one of minAvailable and maxUnavailable" }}
{{- end }}
{{- $pods := ternary $v.sharding.shards $v.replicas $v.sharding.enabled | int }}
{{- if and .enabled $min (not (kindIs "string" .minAvailable)) (ge (int .minAvailable) $pods) }}
{{- $p = append $p (printf "podDisruptionBudget.minAvailable is %v of %d pods: no node could be drained" .minAvailable $pods) }}
{{- end }}
{{- if and .enabled (eq (toString .minAvailable) "100%") }}
{{- $p = append $p "podDisruptionBudget.minAvailable is 100%: no node could be drained" }}
{{- end }}
{{- if and .enabled (has (toString .maxUnavailable) (list "0" "0%")) }}
{{- $p = append $p "podDisruptionBudget.maxUnavailable is 0: no node could be drained" }}
{{- end }}
{{- end }}
{{- if eq (toString $v.hostUsers) "false" }}
{{- if or $v.hostNetwork (and (eq $v.kind "DaemonSet") $v.daemonSet.hostPID) }}
{{- $p = append $p "hostUsers: false does not go with hostNetwork or daemonSet.hostPID: Kubernetes refuses such a pod" }}
{{- end }}
{{- end }}
{{- if and (eq (default "" $v.dnsPolicy) "None") (not (dig "nameservers" list (default dict $v.dnsConfig))) }}
{{- $p = append $p "dnsPolicy: None needs dnsConfig.nameservers" }}
{{- end }}
{{- with $v.service.ipDualStack }}
{{- if and .enabled (eq .ipFamilyPolicy "SingleStack") (gt (len .ipFamilies) 1) }}
{{- $p = append $p "service.ipDualStack.ipFamilyPolicy is SingleStack, but there are two ipFamilies" }}
{{- end }}
{{- end }}
{{- if and $v.collectors.process (not (include "lock-exporter.seesNode" .)) }}
{{- $p = append $p "collectors.process needs kind: DaemonSet with daemonSet.hostProc: a pod's own /proc shows no process of a host" }}
{{- end }}
{{- with $v.networkPolicy }}
{{- if and .enabled .egress.enabled (not (or .egress.to .egress.ports .extraEgress)) }}
{{- $p = append $p "networkPolicy.egress.enabled needs egress.to, egress.ports or extraEgress: else no backend can be reached" }}
{{- end }}
{{- end }}
{{- toYaml $p }}
{{- end }}

{{- define "lock-exporter.problemsOfNames" -}}
{{- $v := .Values }}
{{- $p := list }}
{{- $full := include "lock-exporter.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) }}
{{- $p = append $p (printf "%q is no name for a Service, which begins with a letter; set fullnameOverride" $full) }}
{{- end }}
{{- if gt (len .Release.Name) 53 }}
{{- $p = append $p (printf "the release's name has %d characters; Helm takes at most 53" (len .Release.Name)) }}
{{- end }}
{{- $own := list "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" }}
{{- range $key, $labels := dict "commonLabels" $v.commonLabels "podLabels" $v.podLabels "service.labels" $v.service.labels "serviceMonitor.labels" $v.serviceMonitor.labels "podMonitor.labels" $v.podMonitor.labels "prometheusRule.labels" $v.prometheusRule.labels "dashboards.labels" $v.dashboards.labels }}
{{- range $label, $_ := $labels }}
{{- if has $label $own }}
{{- $p = append $p (printf "%s may not set %s: selectors need the chart's own (nameOverride changes the name)" $key $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $p }}
{{- end }}

{{- define "lock-exporter.problemsOfConfig" -}}
{{- $v := .Values }}
{{- $p := list }}
{{- if and $v.existingConfigMap $v.existingConfigSecret }}
{{- $p = append $p "existingConfigMap and existingConfigSecret contradict each other: there is one configuration" }}
{{- end }}
{{- if not (include "lock-exporter.ownConfig" .) }}
{{- if $v.config.targets }}
{{- $p = append $p "config.targets and existingConfigMap or existingConfigSecret contradict each other: there is one configuration" }}
{{- end }}
{{- if $v.configAsSecret }}
{{- $p = append $p "configAsSecret is about config, and there is an existingConfigMap or existingConfigSecret instead" }}
{{- end }}
{{- end }}
{{- range $index, $target := $v.config.targets }}
{{- $at := printf "config.targets[%d] (%s)" $index $target.name }}
{{- if eq (not $target.restic) (not $target.file) }}
{{- $p = append $p (printf "%s needs either restic or file: what is to be watched" $at) }}
{{- end }}
{{- with $target.restic }}
{{- if and .repository .discover }}
{{- $p = append $p (printf "%s: restic.repository and restic.discover contradict each other" $at) }}
{{- end }}
{{- if not (or .repository .discover .envFromSecret .env_dir .env_file .env) }}
{{- $p = append $p (printf "%s needs restic.repository or restic.discover, or a Secret (restic.envFromSecret) with RESTIC_REPOSITORY: where the repository is, or where to search" $at) }}
{{- end }}
{{- if .passwordSecret }}
{{- range $other := list "password_file" "password_command" "password_env" "masterkey_file" "insecure_no_password" }}
{{- if hasKey $target.restic $other }}
{{- $p = append $p (printf "%s: restic.passwordSecret and restic.%s contradict each other" $at $other) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .envFromSecret .env_dir }}
{{- $p = append $p (printf "%s: restic.envFromSecret and restic.env_dir contradict each other" $at) }}
{{- end }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- $config := include "lock-exporter.config" . | fromYaml }}
{{- with $config.Error }}
{{- $p = append $p (printf "config is no YAML once its templates are filled in (use toJson or quote in them): %s" .) }}
{{- end }}
{{- range $config.targets }}
{{- $name := toString .name }}
{{- if has $name $names }}
{{- $p = append $p (printf "config.targets: two targets are named %s; alerts and dashboards know a target by its name" $name) }}
{{- end }}
{{- if gt (len $name) 128 }}
{{- $p = append $p (printf "config.targets: a target name may have at most 128 bytes, and this one has %d: %s..." (len $name) (trunc 40 $name)) }}
{{- end }}
{{- $names = append $names $name }}
{{- end }}
{{- toYaml $p }}
{{- end }}

{{- define "lock-exporter.problemsOfWeb" -}}
{{- $v := .Values }}
{{- $web := $v.webConfig }}
{{- $p := list }}
{{- if and $web.config $web.existingSecret }}
{{- $p = append $p "webConfig.config and webConfig.existingSecret contradict each other: there is one web configuration" }}
{{- end }}
{{- if $web.tlsSecret }}
{{- range $key := list "cert" "cert_file" "key" "key_file" }}
{{- if hasKey (default dict $web.config.tls_server_config) $key }}
{{- $p = append $p (printf "webConfig.tlsSecret and webConfig.config.tls_server_config.%s contradict each other" $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- $tls := not (not (or $web.tlsSecret $web.config.tls_server_config)) }}
{{- if and $web.scheme (include "lock-exporter.ownWeb" .) (ne $web.scheme (ternary "https" "http" $tls)) }}
{{- $p = append $p (printf "webConfig.scheme is %s, but the web configuration has %s" $web.scheme (ternary "TLS" "no TLS" $tls)) }}
{{- end }}
{{- if and $web.scheme (not (include "lock-exporter.web" .)) (eq $web.scheme "https") }}
{{- $p = append $p "webConfig.scheme is https without a web configuration: set webConfig.tlsSecret, config or existingSecret" }}
{{- end }}
{{- if and $web.existingSecret (not $web.scheme) (not $web.tlsSecret) }}
{{- $p = append $p "webConfig.existingSecret needs webConfig.scheme: the chart cannot look whether it has TLS" }}
{{- end }}
{{- if and (include "lock-exporter.web" .) (not $web.probePort) }}
{{- if $web.config.basic_auth_users }}
{{- $p = append $p "webConfig.probePort may not be 0 with basic_auth_users: the kubelet has no password" }}
{{- end }}
{{- if hasPrefix "Require" (dig "tls_server_config" "client_auth_type" "" $web.config) }}
{{- $p = append $p "webConfig.probePort may not be 0 when clients need a certificate: the kubelet has none" }}
{{- end }}
{{- end }}
{{- if eq (include "lock-exporter.probePort" .) (toString $v.containerPort) }}
{{- $p = append $p (printf "webConfig.probePort and containerPort are both %v" $v.containerPort) }}
{{- end }}
{{- toYaml $p }}
{{- end }}

{{- define "lock-exporter.problemsOfMonitoring" -}}
{{- $v := .Values }}
{{- $p := list }}
{{- if and $v.serviceMonitor.enabled $v.podMonitor.enabled }}
{{- $p = append $p "serviceMonitor.enabled and podMonitor.enabled contradict each other: everything would be scraped twice" }}
{{- end }}
{{- if and $v.serviceMonitor.enabled (not $v.service.enabled) }}
{{- $p = append $p "serviceMonitor.enabled needs service.enabled: it selects the Service; or use podMonitor" }}
{{- end }}
{{- $scheme := include "lock-exporter.scheme" . }}
{{- range $key := list "serviceMonitor" "podMonitor" }}
{{- $monitor := index $v $key }}
{{- if $monitor.enabled }}
{{- if gt (include "lock-exporter.milliseconds" $monitor.scrapeTimeout | int64) (include "lock-exporter.milliseconds" $monitor.interval | int64) }}
{{- $p = append $p (printf "%s.scrapeTimeout (%s) is longer than the interval (%s)" $key $monitor.scrapeTimeout $monitor.interval) }}
{{- end }}
{{- if and $monitor.scheme (ne $monitor.scheme $scheme) }}
{{- $p = append $p (printf "%s.scheme is %s, but the exporter speaks %s (webConfig)" $key $monitor.scheme $scheme) }}
{{- end }}
{{- if and $v.webConfig.config.basic_auth_users (not (or $monitor.basicAuth $monitor.authorization)) }}
{{- $p = append $p (printf "%s needs basicAuth: webConfig.config has basic_auth_users" $key) }}
{{- end }}
{{- if and $monitor.basicAuth $monitor.authorization }}
{{- $p = append $p (printf "%s.basicAuth and %s.authorization contradict each other" $key $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- $known := list }}
{{- range (.Files.Get "rules.yml" | fromYaml).groups }}
{{- range .rules }}
{{- with .alert }}{{ $known = append $known . }}{{ end }}
{{- end }}
{{- end }}
{{- /* A misspelt alert would otherwise go on as if nothing had been said of it. */}}
{{- range $key := list "disabled" "severityOverrides" "forOverrides" "keepFiringForOverrides" }}
{{- range $alert, $_ := index $v.prometheusRule $key }}
{{- if not (has $alert $known) }}
{{- $p = append $p (printf "prometheusRule.%s.%s: no such alert; there are %s" $key $alert ($known | sortAlpha | join ", ")) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $label, $text := $v.prometheusRule.extraAlertLabels }}
{{- if has $label (list "alertname" "severity" "cluster" "namespace" "job" "instance" "target" "host" "mode" "state" "hostname" "username" "command" "pid" "source" "sealed" "backend" "location" "reason" "shard_ordinal" "total_shards") }}
{{- $p = append $p (printf "prometheusRule.extraAlertLabels.%s: the rules set this label themselves" $label) }}
{{- end }}
{{- if contains "{{" $text }}
{{- $p = append $p (printf "prometheusRule.extraAlertLabels.%s: a label is no template; a value in it would make a new alert at each evaluation" $label) }}
{{- end }}
{{- end }}
{{- toYaml $p }}
{{- end }}

{{- /* Kubernetes refuses a pod with two volumes of one name or two mounts at one path. */}}
{{- define "lock-exporter.problemsOfMounts" -}}
{{- $p := list }}
{{- $paths := list }}
{{- range include "lock-exporter.volumeMounts" . | fromYamlArray }}
{{- $path := trimSuffix "/" .mountPath }}
{{- if has $path $paths }}
{{- $p = append $p (printf "two volumes are mounted at %s: look at extraVolumeMounts, extraSecrets and extraConfigmapMounts" $path) }}
{{- end }}
{{- $paths = append $paths $path }}
{{- end }}
{{- $names := list }}
{{- if and .Values.persistence.enabled (eq .Values.kind "StatefulSet") }}
{{- $names = append $names "state" }}
{{- end }}
{{- range include "lock-exporter.volumes" . | fromYamlArray }}
{{- if has .name $names }}
{{- $p = append $p (printf "two volumes are named %s: extraVolumes needs another name" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- range include "lock-exporter.volumeMounts" . | fromYamlArray }}
{{- if not (has .name $names) }}
{{- $p = append $p (printf "extraVolumeMounts names the volume %s, which extraVolumes does not have" .name) }}
{{- end }}
{{- end }}
{{- toYaml $p }}
{{- end }}

{{- /* What is added may not be what the chart has already, nor something that is no object. */}}
{{- define "lock-exporter.problemsOfExtras" -}}
{{- $v := .Values }}
{{- $p := list }}
{{- $names := list "exporter" }}
{{- range concat (default list $v.extraInitContainers) (default list $v.extraContainers) }}
{{- if has .name $names }}
{{- $p = append $p (printf "two containers are named %s: look at extraContainers and extraInitContainers" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $names = list }}
{{- range include "lock-exporter.env" . | fromYamlArray }}
{{- if has .name $names }}
{{- $p = append $p (printf "extraEnv sets %s, which is set already" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- /* The exporter takes a flag once, but for its addresses. */}}
{{- $own := list }}
{{- range include "lock-exporter.ownArgs" . | fromYamlArray }}
{{- $own = append $own (regexReplaceAll "=.*" . "") }}
{{- end }}
{{- range $v.extraArgs }}
{{- $flag := regexReplaceAll "=.*" . "" }}
{{- if and (has $flag $own) (ne $flag "--web.listen-address") }}
{{- $p = append $p (printf "extraArgs has %s, which the chart gives already" $flag) }}
{{- end }}
{{- end }}
{{- range $index, $manifest := $v.extraManifests }}
{{- $text := tpl (ternary $manifest (toYaml $manifest) (kindIs "string" $manifest)) $ }}
{{- range regexSplit "(?m)^---.*$" $text -1 }}
{{- $object := fromYaml . }}
{{- if $object.Error }}
{{- $p = append $p (printf "extraManifests[%d] is no object: %s" $index $object.Error) }}
{{- else if and $object (not (and $object.apiVersion $object.kind $object.metadata)) }}
{{- $p = append $p (printf "extraManifests[%d] needs apiVersion, kind and metadata" $index) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $p }}
{{- end }}
