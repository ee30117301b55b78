package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds in this package.
const GroupName = "flagger.app"

// Kinds of this group.
const (
	CanaryKind         = "Canary"
	MetricTemplateKind = "MetricTemplate"
	AlertProviderKind  = "AlertProvider"
)

// SchemeGroupVersion is the version in which objects are stored and in which Serin reads and writes them.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1beta1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme makes a scheme know the kinds of this package.
var AddToScheme = schemeBuilder.AddToScheme

// Resource gives the qualified name of a resource of this group, for example for errors of the API machinery.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&Canary{}, &CanaryList{},
		&MetricTemplate{}, &MetricTemplateList{},
		&AlertProvider{}, &AlertProviderList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
