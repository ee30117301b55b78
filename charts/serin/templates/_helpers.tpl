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

{{- /* The Prometheus of this chart if there is one, as in Flagger's chart. */ -}}
{{- define "serin.metricsServer" -}}
{{- if (.Values.prometheus).install -}}
http://{{ include "serin.fullname" . }}-prometheus.{{ .Release.Namespace }}:9090
{{- else -}}
{{- .Values.metricsServer -}}
{{- end -}}
{{- end -}}

{{- /* The name of the leader Lease, which Serin derives from the instance ID. */ -}}
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

{{- /* The environment variables with confidential content, and their values. */ -}}
{{- define "serin.secrets" -}}
SLACK_URL: {{ (.Values.slack).url | default "" | quote }}
SLACK_TOKEN: {{ (.Values.slack).token | default "" | quote }}
SLACK_PROXY_URL: {{ (.Values.slack).proxyUrl | default "" | quote }}
MSTEAMS_URL: {{ (.Values.msteams).url | default "" | quote }}
MSTEAMS_PROXY_URL: {{ (.Values.msteams).proxyUrl | default "" | quote }}
EVENT_WEBHOOK_URL: {{ .Values.eventWebhook | default "" | quote }}
{{- end -}}

{{- /* Values files of Flagger's chart use these names, such as in its default affinity. */ -}}
{{- define "flagger.name" -}}{{- include "serin.name" . -}}{{- end -}}
{{- define "flagger.fullname" -}}{{- include "serin.fullname" . -}}{{- end -}}
{{- define "flagger.serviceAccountName" -}}{{- include "serin.serviceAccountName" . -}}{{- end -}}

{{- /* A values file of the other chart may contain its image, which would run with the permissions of Serin. */ -}}
{{- define "serin.rejectOtherImage" -}}
{{- if has (base .Values.image.repository) (list "flagger" "argo-rollouts") -}}
{{- fail (printf "image.repository is %s, which is not an image of Serin: set image.repository and image.tag to your image of Serin, or remove image from the values file" .Values.image.repository) -}}
{{- end -}}
{{- end -}}

{{- /* Without these settings, Serin could not start a process of another user, or that user could read its credentials: Kubernetes
restricts the token of the service account to the user of the pod only if runAsUser is set, and permits its fsGroup to read it.
All that are missing are reported at once. */ -}}
{{- define "serin.rejectPluginUser" -}}
{{- $uid := int (.Values.plugins).uid -}}
{{- if and (.Values.plugins).enabled (gt $uid 0) -}}
{{- $pod := .Values.podSecurityContext | default dict -}}
{{- $container := .Values.securityContext.enabled | ternary .Values.securityContext.context dict | default dict -}}
{{- $missing := list -}}
{{- $where := hasKey $container "runAsUser" | ternary "securityContext.context" "podSecurityContext" -}}
{{- $user := hasKey $container "runAsUser" | ternary $container.runAsUser $pod.runAsUser -}}
{{- if or (kindIs "invalid" $user) (ne (int $user) 0) -}}
{{- $missing = append $missing (printf "%s.runAsUser: set it to 0" $where) -}}
{{- end -}}
{{- $where = hasKey $container "runAsNonRoot" | ternary "securityContext.context" "podSecurityContext" -}}
{{- if hasKey $container "runAsNonRoot" | ternary $container.runAsNonRoot $pod.runAsNonRoot -}}
{{- $missing = append $missing (printf "%s.runAsNonRoot: set it to false" $where) -}}
{{- end -}}
{{- $drop := ($container.capabilities).drop | default list -}}
{{- $add := ($container.capabilities).add | default list -}}
{{- $absent := list -}}
{{- range list "SETUID" "SETGID" "CHOWN" "DAC_OVERRIDE" "KILL" -}}
{{- if and (or (has "ALL" $drop) (has . $drop)) (not (or (has "ALL" $add) (has . $add))) -}}
{{- $absent = append $absent . -}}
{{- end -}}
{{- end -}}
{{- if $absent -}}
{{- $missing = append $missing (printf "securityContext.context.capabilities.add: add %s" (join ", " $absent)) -}}
{{- end -}}
{{- if eq (int $pod.fsGroup) $uid -}}
{{- $missing = append $missing "podSecurityContext.fsGroup: set it to another group, because this one may read the token of Serin" -}}
{{- end -}}
{{- if $missing -}}
{{- fail (printf "plugins.uid is %d, but Serin could not start a plugin as another user, or not protect its token from it; change these values, or remove plugins.uid:\n%s" $uid (join "\n" $missing)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The values of the chart of Argo Rollouts, and what to do instead. All that are set are reported at once. */ -}}
{{- define "serin.valuesOfArgoRollouts" -}}
controller.replicas: set leaderElection.replicaCount
controller.image: set image.repository and image.tag to your image of Serin
controller.resources: set resources
controller.nodeSelector: set nodeSelector
controller.tolerations: set tolerations
controller.affinity: set affinity
controller.topologySpreadConstraints: set topologySpreadConstraints
controller.priorityClassName: set podPriorityClassName
controller.deploymentAnnotations: set annotations
controller.deploymentLabels: set deploymentLabels
controller.podAnnotations: set podAnnotations
controller.podLabels: set podLabels
controller.logging: set logLevel, and -logformat in additionalArguments
controller.extraArgs: set additionalArguments, which may contain the flags of Argo Rollouts
controller.extraEnv: set env
controller.volumes: set additionalVolumes
controller.volumeMounts: set additionalVolumeMounts
controller.metrics: set serviceMonitor.enabled, serviceMonitor.namespace and serviceMonitor.labels
controller.pdb: set podDisruptionBudget
controller.createClusterRole: set namespace, which replaces the ClusterRole by a Role
controller.awsVerifyTargetGroup: add -aws-verify-target-group to additionalArguments
controller.awsTargetGroupBindingAPIVersion: add -aws-target-group-binding-api-version to additionalArguments
controller.albTagKeyResourceID: add -alb-tag-key-resource-id to additionalArguments
controller.selfServiceNotification: add -self-service-notification-enabled to additionalArguments
controller.pprofAddress: add -profiling-address to additionalArguments
controller.metricProviderPlugins: set plugins.enabled, and create the ConfigMap argo-rollouts-config with extraDeploy, as docs/plugins.md describes
controller.stepPlugins: set plugins.enabled, and create the ConfigMap argo-rollouts-config with extraDeploy, as docs/plugins.md describes
controller.trafficRouterPlugins: set plugins.enabled, and create the ConfigMap argo-rollouts-config with extraDeploy, as docs/plugins.md describes; the routers of docs/rollout-routers.md are built in and need neither
notifications: create the ConfigMap and the Secret with extraDeploy, as docs/notifications.md describes
installCRDs: set crd.create and crd.groups
keepCRDs: remove it, because CustomResourceDefinitions always remain when the chart is uninstalled
clusterInstall: set namespace to restrict Serin to one namespace
createClusterAggregateRoles: set rbac.aggregate
providerRBAC: set rbac.providers
containerSecurityContext: set securityContext.context
imagePullSecrets: set image.pullSecret
extraObjects: set extraDeploy
crdAnnotations: remove it, because this chart has no such value
serviceAnnotations: remove it, because this chart has no such value
namespaceOverride: remove it, because this chart has no such value
apiVersionOverrides: remove it, because this chart has no such value
kubeVersionOverride: remove it, because this chart has no such value
{{- end -}}

{{- define "serin.rejectValuesOfArgoRollouts" -}}
{{- $instead := include "serin.valuesOfArgoRollouts" . | fromYaml -}}
{{- $found := list -}}
{{- range $name, $advice := $instead -}}
{{- $parts := splitList "." $name -}}
{{- $parent := eq (len $parts) 2 | ternary ($.Values.controller | default dict) $.Values -}}
{{- if not (kindIs "invalid" (index $parent (last $parts))) -}}
{{- $found = append $found (printf "%s: %s" $name $advice) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.controller -}}
{{- if not (hasKey $instead (printf "controller.%s" $name)) -}}
{{- $found = append $found (printf "controller.%s: remove it, because this chart has no such value" $name) -}}
{{- end -}}
{{- end -}}
{{- if $found -}}
{{- fail (printf "these are values of the chart of Argo Rollouts:\n%s" (join "\n" (sortAlpha $found))) -}}
{{- end -}}
{{- end -}}
