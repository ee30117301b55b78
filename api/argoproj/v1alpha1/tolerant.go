package v1alpha1

import (
	"slices"
	"strings"

	"github.com/serin-dev/serin/api/internal/tolerant"
)

// UnmarshalJSON reads a Rollout as any other type is read, but leaves out what cannot be read, and notes down where that
// was; see tolerant.Readable.
func (r *Rollout) UnmarshalJSON(data []byte) error {
	type plain Rollout // without this method
	left, err := tolerant.Unmarshal(data, (*plain)(r), tolerant.Readable)
	whole := slices.DeleteFunc(left, func(at string) bool { return strings.HasPrefix(at, ephemeralContainers) })
	if len(whole) < len(left) {
		r.Spec.Template.Spec.EphemeralContainers, whole = nil, append(whole, ephemeralContainers)
	}
	r.Unreadable = whole
	return err
}

// ephemeralContainers are left out as a whole where one of them cannot be read: no template can have any, and with what is
// left of them it would be refused.
const ephemeralContainers = "/spec/template/spec/ephemeralContainers"

// UnmarshalJSON reads an AnalysisTemplate; see tolerant.Readable.
func (t *AnalysisTemplate) UnmarshalJSON(data []byte) error {
	type plain AnalysisTemplate // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(t), tolerant.Readable)
	return err
}

// UnmarshalJSON reads a ClusterAnalysisTemplate; see tolerant.Readable.
func (t *ClusterAnalysisTemplate) UnmarshalJSON(data []byte) error {
	type plain ClusterAnalysisTemplate // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(t), tolerant.Readable)
	return err
}

// UnmarshalJSON reads an AnalysisRun; see tolerant.Readable.
func (r *AnalysisRun) UnmarshalJSON(data []byte) error {
	type plain AnalysisRun // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(r), tolerant.Readable)
	return err
}

// UnmarshalJSON reads an Experiment; see tolerant.Readable.
func (e *Experiment) UnmarshalJSON(data []byte) error {
	type plain Experiment // without this method
	_, err := tolerant.Unmarshal(data, (*plain)(e), tolerant.Readable)
	return err
}
