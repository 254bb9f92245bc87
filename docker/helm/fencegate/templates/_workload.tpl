{{/* {of: a map, names: of its entries}: those that are given, as YAML. */}}
{{- define "fencegate.given" -}}
{{- $found := dict -}}
{{- range .names -}}
{{- if hasKey $.of . }}{{ $_ := set $found . (index $.of .) }}{{ end -}}
{{- end -}}
{{- with $found }}{{ toYaml . }}{{ end -}}
{{- end }}

{{/* {root, name, of: the workload}: its pod template. */}}
{{- define "fencegate.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $of := .of -}}
{{- $where := printf "workloads.%s: " .name -}}
{{- $grace := $of.terminationGracePeriodSeconds | default $values.terminationGracePeriodSeconds -}}
{{- $has := or $of.config $of.configText $of.existingConfigMap -}}
{{- include "fencegate.check" (dict "of" (ternary $of $values (not (empty $has))) "where" (ternary $where "" (not (empty $has))) "grace" $grace) -}}
{{- $configMap := $of.existingConfigMap -}}
{{- if not $has -}}
{{- if not (or $values.config $values.configText $values.existingConfigMap) -}}
{{- fail (printf "%sno configuration: give config, configText or existingConfigMap, here or to all" $where) -}}
{{- end -}}
{{- $configMap = $values.existingConfigMap | default (include "fencegate.name" .root) -}}
{{- else if not $configMap -}}
{{- $configMap = .name -}}
{{- end -}}
{{- $leases := dig "rbac" "leases" false $of -}}
{{- $part := dict "root" .root "run" (ternary "run" "" (default false $of.hold)) "own" false "configMap" $configMap
    "secret" ($of.existingSecret | default $values.existingSecret) -}}
metadata:
  labels:
    app: {{ .name }}
    {{- include "fencegate.podLabels" .root | nindent 4 }}
    {{- with $of.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- /* A Job never changes. */}}
  {{- if or $of.podAnnotations (ne $of.kind "Job") }}
  annotations:
    {{- if ne $of.kind "Job" }}
    checksum/config: {{ include "fencegate.configuration" (ternary $of $values (not (empty $has))) | sha256sum }}
    {{- end }}
    {{- with $of.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  {{- if ne $of.kind "Deployment" }}
  restartPolicy: {{ $of.restartPolicy | default "Never" }}
  {{- end }}
  terminationGracePeriodSeconds: {{ $grace }}
  automountServiceAccountToken: {{ $leases }}
  {{- if $leases }}
  serviceAccountName: {{ .name }}
  {{- end }}
  securityContext:
    {{- mergeOverwrite (deepCopy $values.podSecurityContext) ($of.podSecurityContext | default dict) | toYaml | nindent 4 }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "fencegate.given" (dict "of" $of "names" (list "serviceAccountName" "nodeSelector" "tolerations" "affinity"
      "topologySpreadConstraints" "priorityClassName")) }}
  {{- . | nindent 2 }}
  {{- end }}
  initContainers:
    {{- if $of.hold }}
    {{- include "fencegate.holdOf" $part | nindent 4 }}
    {{- end }}
    {{- include "fencegate.sidecarOf" $part | nindent 4 }}
  containers:
    - name: {{ $of.containerName | default .name }}
      image: {{ $of.image | quote }}
      {{- with include "fencegate.given" (dict "of" $of "names" (list "imagePullPolicy" "command" "args" "workingDir" "env" "envFrom"
          "ports" "lifecycle" "startupProbe" "livenessProbe" "readinessProbe" "resources")) }}
      {{- . | nindent 6 }}
      {{- end }}
      securityContext:
        {{- mergeOverwrite (deepCopy $values.containerSecurityContext) ($of.securityContext | default dict) | toYaml | nindent 8 }}
      {{- if or $of.hold $of.volumeMounts }}
      volumeMounts:
        {{- if $of.hold }}
        - { name: run, mountPath: /run/fencegate, readOnly: true }
        {{- end }}
        {{- with $of.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
  volumes:
    {{- include "fencegate.volumesOf" $part | nindent 4 }}
    {{- with $of.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The same: the spec of its Job. */}}
{{- define "fencegate.jobSpec" -}}
{{- with include "fencegate.given" (dict "of" .of "names" (list "backoffLimit" "podFailurePolicy" "activeDeadlineSeconds"
    "ttlSecondsAfterFinished" "completions" "parallelism" "completionMode")) }}
{{- . }}
{{ end -}}
template:
  {{- include "fencegate.podTemplate" . | nindent 2 }}
{{- end }}
