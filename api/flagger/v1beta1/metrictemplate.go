package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MetricTemplate is a query and its provider, for the metrics of many Canaries.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=metrictemplates,singular=metrictemplate,scope=Namespaced,categories=all
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=".spec.provider.type"
type MetricTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the query and its provider.
	// +optional
	Spec MetricTemplateSpec `json:"spec,omitzero"`
	// Status is not used.
	// +optional
	Status MetricTemplateStatus `json:"status,omitzero"`
}

// MetricTemplateList is a list of MetricTemplates.
//
// +kubebuilder:object:root=true
type MetricTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []MetricTemplate `json:"items"`
}

// MetricTemplateSpec is a query and its provider.
type MetricTemplateSpec struct {
	// Provider to which the query is sent.
	Provider MetricTemplateProvider `json:"provider"`

	// Query in the language of the provider, as a Go template with the functions name, namespace, target, service,
	// ingress, route, interval and variables (a map, read as variables.x).
	Query string `json:"query"`
}

// MetricTemplateProvider is a service that executes queries.
type MetricTemplateProvider struct {
	// Type of the service.
	// +kubebuilder:validation:Enum=prometheus;influxdb;datadog;externalmetrics;stackdriver;cloudwatch;newrelic;graphite;dynatrace;keptn;splunk;wavefront;skywalking;web
	Type string `json:"type"`

	// Address is the URL of the service. Defaults to the public URL of the service, if it has one.
	// +optional
	Address string `json:"address,omitempty"`

	// Headers are sent with each query. Used by prometheus and web.
	// +optional
	Headers map[string][]string `json:"headers,omitempty"`

	// SecretRef names a Secret with credentials, in the namespace of the MetricTemplate.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Region of the service. Used by cloudwatch.
	// +optional
	Region string `json:"region,omitempty"`

	// InsecureSkipVerify disables the verification of the service's certificate. Used by prometheus, graphite,
	// externalmetrics and web. Defaults to false.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// SecretReference names a Secret in the namespace of the object that refers to it.
type SecretReference struct {
	// Name of the Secret.
	Name string `json:"name"`
}

// MetricTemplateStatus is not used.
type MetricTemplateStatus struct {
	// Conditions are not used.
	// +listType=atomic
	// +optional
	Conditions []CanaryCondition `json:"conditions,omitempty"`
}
