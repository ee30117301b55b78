package v1beta1

import "cmp"

// EffectiveAnalysis returns spec.analysis or, if it is absent, spec.canaryAnalysis; nil: there is no analysis.
func (s *CanarySpec) EffectiveAnalysis() *CanaryAnalysis { return cmp.Or(s.Analysis, s.CanaryAnalysis) }

// ApexName returns the name of the Service that clients call: spec.service.name or, if it is empty, the name of the target.
func (s *CanarySpec) ApexName() string { return cmp.Or(s.Service.Name, s.TargetRef.Name) }
