{{- define "admit.name" -}}
{{- if contains "admit" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-admit" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "admit.selector" -}}
app.kubernetes.io/name: admit
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "admit.labels" -}}
{{ include "admit.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "admit.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "admit.name" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* "true" if each gate has a volume. */}}
{{- define "admit.hasVolume" -}}
{{- if kindIs "bool" .Values.persistence.enabled -}}
{{- .Values.persistence.enabled -}}
{{- else -}}
{{- not .Values.ledger.url -}}
{{- end -}}
{{- end -}}

{{/* Values that no single line of the schema can refuse. */}}
{{- define "admit.validate" -}}
{{- if not .Values.principals -}}
{{- fail "principals is empty: a gate that does not listen on loopback needs at least one; `admit keys new` makes a key" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.ledger.url) -}}
{{- fail (printf "replicas is %d, but an embedded ledger belongs to one gate: set ledger.url to a PostgreSQL" (int .Values.replicas)) -}}
{{- end -}}
{{- if and (not .Values.ledger.url) (ne (include "admit.hasVolume" .) "true") -}}
{{- fail "persistence.enabled is false, but the embedded ledger would be lost with its pod" -}}
{{- end -}}
{{- if and .Values.ledger.tlsCa (not .Values.ledger.existingSecret) -}}
{{- fail "ledger.tlsCa needs ledger.existingSecret, with the key ca.pem" -}}
{{- end -}}
{{- end -}}
