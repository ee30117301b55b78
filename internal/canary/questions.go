package canary

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/google/uuid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// HookQuestion asks a webhook.
type HookQuestion struct {
	Hook flaggerv1.CanaryWebhook
	// Phase is what the payload says.
	Phase flaggerv1.CanaryPhase
	// Key tells a receiver that two calls are one question.
	Key string
}

// MetricQuestion asks for one measurement.
type MetricQuestion struct{ Check Check }

// SourcesQuestion asks whether the sources of all checks can be reached.
type SourcesQuestion struct{ Checks []Check }

// askAgain is how soon a provider that could not be reached is asked again, unreachableGrace for how long that does
// not count against the release.
const (
	askAgain         = 5 * time.Second
	unreachableGrace = 60 * time.Second
)

// hookProbe asks a webhook for one attempt: a window, a revision, or a moment.
func (s Snapshot) hookProbe(hook flaggerv1.CanaryWebhook, phase flaggerv1.CanaryPhase, attempt string, since time.Time) release.Probe {
	id := strings.Join([]string{"hook", string(hook.Type), hook.Name, string(phase), attempt}, "/")
	return release.Probe{ID: id, Since: since, Question: HookQuestion{Hook: hook, Phase: phase, Key: digest(s.UID, s.run(), id)}}
}

// metricProbe asks for one check of the open window, once the window is over.
func (s Snapshot) metricProbe(check Check) release.Probe {
	return release.Probe{
		ID:       strings.Join([]string{"metric", check.Metric.Name, string(check.Source), s.run(), s.attempt()}, "/"),
		Since:    s.windowEnd(),
		Question: MetricQuestion{Check: check},
	}
}

// letters are ten letters derived from what they are for.
func letters(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	out := make([]byte, 10)
	for i := range out {
		out[i] = 'a' + sum[i]%26
	}
	return string(out)
}

// digest names something by everything that makes it what it is. Nothing in a release is random: a crash must come to
// the same names.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// identity is a UUID derived in the same way, for fields that hold one.
func identity(parts ...string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strings.Join(parts, "\x00"))).String()
}

// run names the attempt. Where the additive status is pruned it comes from the fields of the API.
func (s Snapshot) run() string {
	if run := s.serin().Run; run != "" {
		return run
	}
	return runOf(s.UID, s.Status)
}

func runOf(uid string, status flaggerv1.CanaryStatus) string {
	began := ""
	if c := condition(status, flaggerv1.ConditionPromoted); c != nil {
		began = c.LastUpdateTime.UTC().Format(time.RFC3339)
	}
	return digest(uid, status.LastAppliedSpec, began)[:16]
}
