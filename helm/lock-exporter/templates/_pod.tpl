{{- /* What the three kinds have in common: a pod's template. */}}
{{- define "lock-exporter.podTemplate" -}}
{{- $values := .Values }}
{{- $daemon := eq $values.kind "DaemonSet" -}}
metadata:
  labels: {{- include "lock-exporter.labelsWith" (list . $values.podLabels) | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: exporter
    {{- if not $values.configReloader.enabled }}
    checksum/config: {{ include "lock-exporter.checksum" . }}
    {{- end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "lock-exporter.serviceAccountName" . | quote }}
  automountServiceAccountToken: {{ $values.serviceAccount.automountServiceAccountToken }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with include "lock-exporter.pullSecrets" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- range $key := list "priorityClassName" "runtimeClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "hostAliases" "dnsConfig" }}
  {{- with index $values $key }}
  {{ $key }}: {{- ternary (printf " %s" (toYaml .)) (toYaml . | nindent 4) (kindIs "string" .) }}
  {{- end }}
  {{- end }}
  {{- with default (ternary "ClusterFirstWithHostNet" "" $values.hostNetwork) $values.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- if $values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- if not (kindIs "invalid" $values.hostUsers) }}
  hostUsers: {{ $values.hostUsers }}
  {{- end }}
  {{- if and $daemon $values.daemonSet.hostPID }}
  hostPID: true
  {{- end }}
  securityContext: {{- toYaml (ternary $values.daemonSet.podSecurityContext $values.podSecurityContext $daemon) | nindent 4 }}
  {{- with $values.extraInitContainers }}
  initContainers: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: exporter
      image: {{ include "lock-exporter.image" . }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: {{- include "lock-exporter.args" . | nindent 8 }}
      env: {{- include "lock-exporter.env" . | nindent 8 }}
      {{- with $values.extraEnvFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - name: http
          containerPort: {{ $values.containerPort }}
          protocol: TCP
        {{- with include "lock-exporter.probePort" . }}
        - name: probe
          containerPort: {{ . }}
          protocol: TCP
        {{- end }}
      {{- range $key := list "livenessProbe" "readinessProbe" "startupProbe" }}
      {{- with index $values $key }}
      {{ $key }}: {{- include "lock-exporter.probe" (list $ .) | nindent 8 }}
      {{- end }}
      {{- end }}
      resources: {{- toYaml (default dict $values.resources) | nindent 8 }}
      securityContext: {{- toYaml (ternary $values.daemonSet.securityContext $values.securityContext $daemon) | nindent 8 }}
      volumeMounts: {{- include "lock-exporter.volumeMounts" . | nindent 8 }}
    {{- with $values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes: {{- include "lock-exporter.volumes" . | nindent 4 }}
{{- end }}

{{- define "lock-exporter.args" -}}
{{- include "lock-exporter.ownArgs" . }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "lock-exporter.ownArgs" -}}
{{- $values := .Values }}
{{- $folder := include "lock-exporter.folder" . -}}
- --config.file={{ $folder }}/config/lock_exporter.yml
{{- if $values.configReloader.enabled }}
- --config.enable-auto-reload
- --config.auto-reload-interval={{ $values.configReloader.interval }}
{{- end }}
- --web.listen-address=:{{ $values.containerPort }}
{{- if include "lock-exporter.web" . }}
- --web.config.file={{ $folder }}/web/web.yml
{{- end }}
{{- with include "lock-exporter.probePort" . }}
- --web.probe-listen-address=:{{ . }}
{{- end }}
{{- with $values.web.routePrefix }}
- --web.route-prefix={{ . }}
{{- end }}
- --state.dir=/var/lib/lock-exporter
{{- if $values.sharding.enabled }}
- --shard=auto
- --total-shards={{ $values.sharding.shards }}
{{- end }}
{{- if eq $values.kind "DaemonSet" }}
{{- if $values.daemonSet.hostProc }}
- --path.procfs=/host/proc
{{- end }}
{{- if $values.daemonSet.hostRoot }}
- --path.rootfs=/host/root
{{- end }}
{{- end }}
{{- /* In a pod's own /proc, every process of a host would look gone. */}}
{{- if not (and $values.collectors.evidence (include "lock-exporter.seesNode" .)) }}
- --no-collector.evidence
{{- end }}
{{- if $values.collectors.process }}
- --collector.process
{{- end }}
{{- end }}

{{- define "lock-exporter.env" -}}
{{- $values := .Values -}}
- name: LOCK_EXPORTER_HOST_NAME
{{- if eq $values.kind "DaemonSet" }}
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- else }}
  value: {{ $values.hostName | quote }}
{{- end }}
- name: LOCK_EXPORTER_LOG_LEVEL
  value: {{ $values.log.level }}
- name: LOCK_EXPORTER_LOG_FORMAT
  value: {{ $values.log.format }}
{{- if $values.sharding.enabled }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}
{{- if dig "limits" "cpu" "" (default dict $values.resources) }}
- name: TOKIO_WORKER_THREADS
  valueFrom:
    resourceFieldRef:
      resource: limits.cpu
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* [root, probe]: with the port, the scheme and the prefix, where the probe says none. */}}
{{- define "lock-exporter.probe" -}}
{{- $root := first . }}
{{- $probe := deepCopy (last .) }}
{{- with $probe.httpGet }}
{{- if not .port }}
{{- if include "lock-exporter.probePort" $root }}
{{- $_ := set . "port" "probe" }}
{{- else }}
{{- $_ := set . "port" "http" }}
{{- if and (not .scheme) (eq (include "lock-exporter.scheme" $root) "https") }}
{{- $_ := set . "scheme" "HTTPS" }}
{{- end }}
{{- end }}
{{- $_ := set . "path" (printf "%s%s" (trimSuffix "/" (default "" $root.Values.web.routePrefix)) .path) }}
{{- end }}
{{- end }}
{{- toYaml $probe }}
{{- end }}

{{- define "lock-exporter.volumeMounts" -}}
{{- $values := .Values }}
{{- $folder := include "lock-exporter.folder" . -}}
- name: config
  mountPath: {{ $folder }}/config
  readOnly: true
- name: state
  mountPath: /var/lib/lock-exporter
{{- if include "lock-exporter.web" . }}
- name: web
  mountPath: {{ $folder }}/web
  readOnly: true
{{- end }}
{{- if $values.webConfig.tlsSecret }}
- name: tls
  mountPath: {{ $folder }}/tls
  readOnly: true
{{- end }}
{{- if include "lock-exporter.ssh" . }}
- name: ssh
  mountPath: {{ $folder }}/ssh
  readOnly: true
{{- end }}
{{- range $index, $name := include "lock-exporter.secretNames" . | fromYamlArray }}
- name: secret-{{ $index }}
  mountPath: {{ printf "%s/secrets/%s" $folder $name | quote }}
  readOnly: true
{{- end }}
{{- if eq $values.kind "DaemonSet" }}
{{- if $values.daemonSet.hostProc }}
- name: host-proc
  mountPath: /host/proc
  mountPropagation: HostToContainer
  readOnly: true
{{- end }}
{{- if $values.daemonSet.hostRoot }}
- name: host-root
  mountPath: /host/root
  mountPropagation: HostToContainer
  readOnly: true
{{- end }}
{{- end }}
{{- range $index, $extra := $values.extraSecrets }}
- name: extra-secret-{{ $index }}
  mountPath: {{ $extra.mountPath | quote }}
  readOnly: true
{{- end }}
{{- range $index, $extra := $values.extraConfigmapMounts }}
- name: extra-configmap-{{ $index }}
  mountPath: {{ $extra.mountPath | quote }}
  readOnly: true
{{- end }}
{{- with $values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Secrets are readable for the group of the pod, or for root where the pod has no group. */}}
{{- define "lock-exporter.secretMode" -}}
{{ ternary "0400" "0440" (eq .Values.kind "DaemonSet") }}
{{- end }}

{{- define "lock-exporter.volumes" -}}
{{- $values := .Values }}
{{- $full := include "lock-exporter.fullname" . }}
{{- $mode := include "lock-exporter.secretMode" . -}}
- name: config
{{- if include "lock-exporter.ownConfig" . }}
{{- if $values.configAsSecret }}
  secret:
    secretName: {{ $full }}
    defaultMode: {{ $mode }}
{{- else }}
  configMap:
    name: {{ $full }}
{{- end }}
{{- else }}
{{- if $values.existingConfigSecret }}
  secret:
    secretName: {{ $values.existingConfigSecret | quote }}
    defaultMode: {{ $mode }}
{{- else }}
  configMap:
    name: {{ $values.existingConfigMap | quote }}
{{- end }}
    items:
      - key: {{ $values.existingConfigKey | quote }}
        path: lock_exporter.yml
{{- end }}
{{- if not $values.persistence.enabled }}
- name: state
  emptyDir: {{- toYaml $values.persistence.emptyDir | nindent 4 }}
{{- else if eq $values.kind "Deployment" }}
- name: state
  persistentVolumeClaim:
    claimName: {{ default (include "lock-exporter.nameWith" (list . "state")) $values.persistence.existingClaim | quote }}
{{- end }}
{{- if include "lock-exporter.web" . }}
- name: web
  secret:
    secretName: {{ default (include "lock-exporter.nameWith" (list . "web")) $values.webConfig.existingSecret | quote }}
    defaultMode: {{ $mode }}
    {{- if $values.webConfig.existingSecret }}
    items:
      - key: {{ $values.webConfig.existingSecretKey | quote }}
        path: web.yml
    {{- end }}
{{- end }}
{{- with $values.webConfig.tlsSecret }}
- name: tls
  secret:
    secretName: {{ . | quote }}
    defaultMode: {{ $mode }}
{{- end }}
{{- if include "lock-exporter.ssh" . }}
- name: ssh
  projected:
    defaultMode: {{ $mode }}
    sources:
      {{- with $values.ssh.existingSecret }}
      - secret:
          name: {{ . | quote }}
      {{- end }}
      {{- if include "lock-exporter.ownSsh" . }}
      - configMap:
          name: {{ include "lock-exporter.nameWith" (list . "ssh") }}
      {{- end }}
{{- end }}
{{- range $index, $name := include "lock-exporter.secretNames" . | fromYamlArray }}
- name: secret-{{ $index }}
  secret:
    secretName: {{ $name | quote }}
    defaultMode: {{ $mode }}
{{- end }}
{{- if eq $values.kind "DaemonSet" }}
{{- with $values.daemonSet.hostProc }}
- name: host-proc
  hostPath:
    path: {{ . | quote }}
{{- end }}
{{- with $values.daemonSet.hostRoot }}
- name: host-root
  hostPath:
    path: {{ . | quote }}
{{- end }}
{{- end }}
{{- range $index, $extra := $values.extraSecrets }}
- name: extra-secret-{{ $index }}
  secret:
    secretName: {{ $extra.name | quote }}
    {{- omit $extra "name" "mountPath" | merge (dict "defaultMode" (default 288 $extra.defaultMode | int)) | toYaml | nindent 4 }}
{{- end }}
{{- range $index, $extra := $values.extraConfigmapMounts }}
- name: extra-configmap-{{ $index }}
  configMap:
    name: {{ $extra.name | quote }}
    {{- with omit $extra "name" "mountPath" }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
