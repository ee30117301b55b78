package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AlertProvider is a chat service that receives alerts about releases.
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

	// Spec defines the chat service and its address.
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

// AlertProviderSpec defines a chat service and its address, which is set by address or by secretRef.
type AlertProviderSpec struct {
	// Type of the chat service.
	// +kubebuilder:validation:Enum=slack;msteams;discord;rocket;gchat
	Type string `json:"type"`

	// Channel that receives the messages. Defaults to general.
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

	// SecretRef names a Secret in the namespace of the AlertProvider. Its key address contains the URL, and its optional key
	// token a token.
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
