package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AlertProvider is a chat or another service that receives alerts about releases.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=alertproviders,singular=alertprovider,scope=Namespaced,categories=all
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=".spec.type"
type AlertProvider struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec defines the service and its address.
	// +optional
	Spec AlertProviderSpec `json:"spec,omitzero"`
	// Status is not used.
	// +optional
	Status AlertProviderStatus `json:"status,omitzero"`
}

// AlertProviderList is a list of AlertProviders.
//
// +kubebuilder:object:root=true
type AlertProviderList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []AlertProvider `json:"items"`
}

// AlertProviderSpec defines a service and its address or options, which are set by address or by secretRef.
type AlertProviderSpec struct {
	// Type of the service: a chat that Flagger has too (slack, msteams, discord, rocket, gchat), or a service of notifications.
	// +kubebuilder:validation:Enum=slack;msteams;discord;rocket;gchat;alertmanager;awssqs;email;gcppubsub;github;googlechat;grafana;mattermost;nats;newrelic;opsgenie;pagerduty;pagerdutyv2;pushover;rocketchat;teams;teams-workflows;telegram;webex;webhook
	Type string `json:"type"`

	// Channel that receives the messages. Defaults to general for the chats. For other services it is the recipient, such as
	// an email address; some need none.
	// +optional
	Channel string `json:"channel,omitempty"`

	// Username of the sender. Defaults to flagger.
	// +optional
	Username string `json:"username,omitempty"`

	// Address is the URL to which messages are posted.
	// +optional
	Address string `json:"address,omitempty"`

	// Proxy is the URL of an HTTP proxy for the address. If omitted, no proxy is used.
	// +optional
	Proxy string `json:"proxy,omitempty"`

	// SecretRef names a Secret in the namespace of the AlertProvider. For the chats, its key address contains the URL, and its
	// optional key token a token. For other services, its key options contains their options in YAML, in which $KEY refers to
	// another key, and its optional key template a template in YAML.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// AlertProviderStatus is not used.
type AlertProviderStatus struct {
	// Conditions are not used.
	// +listType=atomic
	// +optional
	Conditions []CanaryCondition `json:"conditions,omitempty"`
}
