{{- define "fencegate.name" -}}
{{- .Values.fullnameOverride | default (printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-") -}}
{{- end }}

{{/* Of an object, never of a pod template: there a new version of the chart would replace pods that need no change. */}}
{{- define "fencegate.labels" -}}
app.kubernetes.io/name: fencegate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fencegate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Of root, or of a workload: what stands in fencegate.yaml; "" where another one has it. */}}
{{- define "fencegate.configuration" -}}
{{- if .configText -}}
{{ .configText }}
{{- else if .config -}}
{{ toYaml .config }}
{{- end -}}
{{- end }}

{{/* {root, of: values or a workload, where: its name in messages, grace}: fails where the pod would not be as its configuration says. */}}
{{- define "fencegate.check" -}}
{{- $ways := 0 -}}
{{- range list "config" "configText" "existingConfigMap" -}}
{{- if index $.of . }}{{ $ways = add1 $ways }}{{ end -}}
{{- end -}}
{{- if gt $ways 1 }}{{ fail (printf "%sonly one of config, configText and existingConfigMap" .where) }}{{ end -}}
{{- with .of.config -}}
{{- $listen := dig "admin" "listen" "" . -}}
{{- if not (hasSuffix ":9180" $listen) -}}
{{- fail (printf "%sconfig.admin.listen is to have port 9180, which the probes ask, not %q" $.where $listen) -}}
{{- end -}}
{{- $drain := toString (dig "drain_timeout" "25s" .) -}}
{{- if regexMatch "^[0-9]+[sm]$" $drain -}}
{{- if le (int $.grace) (mul (regexFind "^[0-9]+" $drain | int) (ternary 60 1 (hasSuffix "m" $drain)) | int) -}}
{{- fail (printf "%sterminationGracePeriodSeconds, %d, is to be above config.drain_timeout, %s" $.where (int $.grace) $drain) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
