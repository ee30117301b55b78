package canary

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

// Asked reports that a question left a process and reached whom it was put to.
type Asked struct {
	Instance string
	UID      types.UID
	Probe    release.Query
}

// Answered reports that an answer came back to the process that had asked.
type Answered struct {
	Instance string
	UID      types.UID
	Probe    release.Query
	Answer   release.Answer
}
