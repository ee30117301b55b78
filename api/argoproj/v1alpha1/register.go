package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds in this package.
const GroupName = "argoproj.io"

// Kinds of this group.
const (
	RolloutKind                 = "Rollout"
	AnalysisTemplateKind        = "AnalysisTemplate"
	ClusterAnalysisTemplateKind = "ClusterAnalysisTemplate"
	AnalysisRunKind             = "AnalysisRun"
	ExperimentKind              = "Experiment"
)

// SchemeGroupVersion is the only version of the group.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme registers the kinds of this package in a scheme.
var AddToScheme = schemeBuilder.AddToScheme

// Resource returns the qualified name of a resource of this group, for example for errors of the API machinery.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&Rollout{}, &RolloutList{},
		&AnalysisTemplate{}, &AnalysisTemplateList{},
		&ClusterAnalysisTemplate{}, &ClusterAnalysisTemplateList{},
		&AnalysisRun{}, &AnalysisRunList{},
		&Experiment{}, &ExperimentList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
