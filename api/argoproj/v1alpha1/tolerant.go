package v1alpha1

import (
	"slices"
	"strings"

	"github.com/serin-dev/serin/api/internal/tolerant"
)

// UnmarshalJSON decodes a Rollout like any other type, but omits values that cannot be decoded, and records their positions;
// see tolerant.Readable.
func (r *Rollout) UnmarshalJSON(data []byte) error {
	type plain Rollout // without this method
	omitted, err := tolerant.Unmarshal(data, (*plain)(r), tolerant.Readable)
	unreadable := slices.DeleteFunc(omitted, func(at string) bool { return strings.HasPrefix(at, ephemeralContainers) })
	if len(unreadable) < len(omitted) {
		r.Spec.Template.Spec.EphemeralContainers, unreadable = nil, append(unreadable, ephemeralContainers)
	}
	r.Unreadable = unreadable
	return err
}

// ephemeralContainers are omitted entirely if one of them cannot be decoded: templates cannot have any, so a partial list
// would be refused.
const ephemeralContainers = "/spec/template/spec/ephemeralContainers"

// UnmarshalJSON decodes an AnalysisTemplate; see tolerant.Readable.
func (t *AnalysisTemplate) UnmarshalJSON(data []byte) error {
	type plain AnalysisTemplate // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(t), tolerant.Readable)
	return err
}

// UnmarshalJSON decodes a ClusterAnalysisTemplate; see tolerant.Readable.
func (t *ClusterAnalysisTemplate) UnmarshalJSON(data []byte) error {
	type plain ClusterAnalysisTemplate // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(t), tolerant.Readable)
	return err
}

// UnmarshalJSON decodes an AnalysisRun; see tolerant.Readable.
func (r *AnalysisRun) UnmarshalJSON(data []byte) error {
	type plain AnalysisRun // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(r), tolerant.Readable)
	return err
}

// UnmarshalJSON decodes an Experiment; see tolerant.Readable.
func (e *Experiment) UnmarshalJSON(data []byte) error {
	type plain Experiment // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(e), tolerant.Readable)
	return err
}
