{{- define "equipoise.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 50 characters: the longest suffix below is -leader-election. */}}
{{- define "equipoise.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "equipoise.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "equipoise.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Cluster-scoped names hold the namespace too, so that two releases never share one. */}}
{{- define "equipoise.clusterName" -}}
{{- if eq (include "equipoise.fullname" .) .Release.Namespace -}}
{{- .Release.Namespace -}}
{{- else -}}
{{- printf "%s:%s" .Release.Namespace (include "equipoise.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "equipoise.selectorLabels" -}}
app.kubernetes.io/name: {{ include "equipoise.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "equipoise.labels" -}}
{{ include "equipoise.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "equipoise.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "equipoise.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "equipoise.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The operator's settings file. */}}
{{- define "equipoise.settings" -}}
{{- $election := mergeOverwrite (dict "namespace" .Release.Namespace) (deepCopy .Values.leaderElection) -}}
{{- $settings := dict
      "namespaces" .Values.watch.namespaces
      "prometheus" (deepCopy .Values.prometheus)
      "capacity" (deepCopy .Values.capacity)
      "leaderElection" $election
      "http" (dict "host" "0.0.0.0" "port" 8080)
      "logging" (deepCopy .Values.logging) -}}
{{- toYaml (mergeOverwrite $settings (deepCopy .Values.settings)) -}}
{{- end -}}
