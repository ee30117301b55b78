{{- define "serin.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "serin.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "serin.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "serin.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "serin.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "serin.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* The name of the leader Lease, which Serin derives from the instance id. */ -}}
{{- define "serin.leaseName" -}}
{{- if .Values.instanceID -}}
{{- printf "serin-%s" .Values.instanceID -}}
{{- else -}}
serin
{{- end -}}
{{- end -}}

{{- define "serin.selectorLabels" -}}
app.kubernetes.io/name: {{ include "serin.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "serin.labels" -}}
{{ include "serin.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* The variables that hold what nobody else shall read, and the values that they come from. */ -}}
{{- define "serin.secrets" -}}
SLACK_URL: {{ .Values.slack.url | quote }}
SLACK_TOKEN: {{ .Values.slack.token | quote }}
SLACK_PROXY_URL: {{ .Values.slack.proxyUrl | quote }}
MSTEAMS_URL: {{ .Values.msteams.url | quote }}
MSTEAMS_PROXY_URL: {{ .Values.msteams.proxyUrl | quote }}
EVENT_WEBHOOK_URL: {{ .Values.eventWebhook | quote }}
{{- end -}}
