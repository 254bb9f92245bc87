{{/*
The sidecar, for the workloads of this chart and for pods of yours. The chart that depends on this one gives its scope:

  metadata:
    labels:
      {{- include "fencegate.podLabels" .Subcharts.fencegate | nindent 6 }}
    annotations:
      {{- include "fencegate.podAnnotations" .Subcharts.fencegate | nindent 6 }}
  spec:
    initContainers:
      {{- include "fencegate.sidecar" .Subcharts.fencegate | nindent 6 }}
    volumes:
      {{- include "fencegate.volumes" .Subcharts.fencegate | nindent 6 }}

For jobs under fencegate-hold: `fencegate.hold` in front of the sidecar, and `fencegate.holdMount` in the job's volumeMounts. Then
the pod needs `fsGroup: 65532`, where the job runs as another user.

In a pod of yours the sidecar takes no right from the pod's own securityContext, as with `fencegate inject`.
*/}}
{{- define "fencegate.podLabels" -}}
fencegate: sidecar
{{- end }}

{{/* So that pods are replaced when their configuration changes. A Secret needs none of that: see docs/operations.md. */}}
{{- define "fencegate.podAnnotations" -}}
checksum/config: {{ include "fencegate.configuration" .Values | sha256sum }}
{{- end }}

{{- define "fencegate.sidecar" -}}
{{- include "fencegate.check" (dict "of" .Values "where" "" "grace" .Values.terminationGracePeriodSeconds) -}}
{{- include "fencegate.sidecarOf" (dict "root" . "run" "fencegate-run" "own" true "secret" .Values.existingSecret) -}}
{{- end }}

{{- define "fencegate.volumes" -}}
{{- $configMap := .Values.existingConfigMap | default (include "fencegate.name" .) -}}
{{- include "fencegate.volumesOf" (dict "root" . "run" "fencegate-run" "own" true "secret" .Values.existingSecret "configMap" $configMap) -}}
{{- end }}

{{- define "fencegate.hold" -}}
{{- include "fencegate.holdOf" (dict "root" . "run" "fencegate-run" "own" true) -}}
{{- end }}

{{- define "fencegate.holdMount" -}}
- { name: fencegate-run, mountPath: /run/fencegate, readOnly: true }
{{- end }}

{{/* Below: {root, run: the volume of /run/fencegate or "", own: whether the pod is none of this chart's, secret, configMap}. */}}
{{- define "fencegate.securityContext" -}}
{{- $given := deepCopy .root.Values.containerSecurityContext -}}
{{- if .own -}}
{{- $given = merge $given (pick .root.Values.podSecurityContext "runAsNonRoot" "runAsUser" "runAsGroup" "seccompProfile") -}}
{{- end -}}
{{ toYaml $given }}
{{- end }}

{{- define "fencegate.pull" -}}
image: {{ include "fencegate.image" .root }}
{{- with .root.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- define "fencegate.holdOf" -}}
# Brings fencegate-hold, one static file, to the image of the job.
- name: fencegate-copy
  {{- include "fencegate.pull" . | nindent 2 }}
  args: [copy-self, /run/fencegate/bin]
  securityContext:
    {{- include "fencegate.securityContext" . | nindent 4 }}
  volumeMounts:
    - { name: {{ .run }}, mountPath: /run/fencegate }
{{- end }}

{{- define "fencegate.sidecarOf" -}}
# A native sidecar: up before the writer starts, stopped after it has ended, and it does not keep a Job alive.
- name: fencegate
  {{- include "fencegate.pull" . | nindent 2 }}
  restartPolicy: Always
  args: [serve, -c, /etc/fencegate/fencegate.yaml]
  {{- with .root.Values.sidecar.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports: [{ name: fencegate, containerPort: 9180 }]
  # The writer starts when the gate listens.
  startupProbe:
    exec: { command: [fencegate, healthcheck, --ready] }
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 30
  # Does not ask for the backend: a restart would not bring it back. There is no readinessProbe for the same reason: a sidecar's
  # readiness counts for its whole pod.
  livenessProbe:
    exec: { command: [fencegate, healthcheck] }
    periodSeconds: 10
    timeoutSeconds: 5
  securityContext:
    {{- include "fencegate.securityContext" . | nindent 4 }}
  {{- with .root.Values.sidecar.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    {{- with .run }}
    - { name: {{ . }}, mountPath: /run/fencegate }
    {{- end }}
    - { name: fencegate-config, mountPath: /etc/fencegate, readOnly: true }
    {{- if .secret }}
    - { name: fencegate-secret, mountPath: /run/secrets/fencegate, readOnly: true }
    {{- end }}
    {{- with .root.Values.sidecar.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "fencegate.volumesOf" -}}
{{- with .run -}}
- name: {{ . }}
  emptyDir: {}
{{ end -}}
- name: fencegate-config
  configMap: { name: {{ .configMap | quote }} }
{{- with .secret }}
- name: fencegate-secret
  # The sidecar is in the pod's fsGroup; a pod of yours may have none.
  secret: { secretName: {{ . | quote }}{{ if not $.own }}, defaultMode: 0440{{ end }} }
{{- end }}
{{- with .root.Values.sidecar.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
