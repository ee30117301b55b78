package canary

import (
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Asked tells that a question left a process and reached whom it was put to.
type Asked struct {
	Instance string
	Release  types.NamespacedName
	UID      types.UID
	Probe    release.Probe
	// Revision is what the target ran when the question arrived, Status what the API server held then.
	Revision string
	Status   flaggerv1.CanaryStatus
}

// Answered tells that an answer came back to the process that had asked.
type Answered struct {
	Instance string
	Release  types.NamespacedName
	UID      types.UID
	Probe    release.Probe
	Answer   release.Answer
}

// Did tells what a person, or a tool, did to a release.
type Did struct {
	Release types.NamespacedName
	// What is one of the verbs in people.go.
	What string
	// Revision is the target's from then on, where it was changed.
	Revision string
}
