package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AlertProvider is a chat that is told how releases go.
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

	// Spec says which chat it is and how to get there.
	// +optional
	Spec AlertProviderSpec `json:"spec,omitzero"`
	// Status is not written today.
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

// AlertProviderSpec says which chat it is and how to get there: by address, or by secretRef.
type AlertProviderSpec struct {
	// Type of the chat.
	// +kubebuilder:validation:Enum=slack;msteams;discord;rocket;gchat
	Type string `json:"type"`

	// Channel to write to. Without it: general.
	// +optional
	Channel string `json:"channel,omitempty"`

	// Username that the message comes from. Without it: flagger.
	// +optional
	Username string `json:"username,omitempty"`

	// Address is the URL to post to.
	// +optional
	Address string `json:"address,omitempty"`

	// Proxy is the URL of an HTTP proxy on the way to the address. Without it, none.
	// +optional
	Proxy string `json:"proxy,omitempty"`

	// SecretRef names a Secret in the namespace of the AlertProvider: its key address has the URL, its key token, where
	// there is one, the token.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// AlertProviderStatus is not written today.
type AlertProviderStatus struct {
	// Conditions are not written today.
	// +listType=atomic
	// +optional
	Conditions []CanaryCondition `json:"conditions,omitempty"`
}
