package canary

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// HookQuery asks a webhook.
type HookQuery struct {
	Hook flaggerv1.CanaryWebhook
	// Phase is what the payload says.
	Phase flaggerv1.CanaryPhase
	// Key tells a receiver that two calls are one question.
	Key string
}

// MetricQuery asks for one measurement.
type MetricQuery struct{ Check Check }

// SourcesQuery asks whether the sources of all checks can be reached.
type SourcesQuery struct{ Checks []Check }

// askAgainInterval is how soon a provider that could not be reached is asked again, unreachableGrace for how long that does
// not count against the release.
const (
	askAgainInterval = 5 * time.Second
	unreachableGrace = 60 * time.Second
)

// hookQuery names the call of a webhook for one attempt of a run: a window, a revision, the first look. Its question is
// added when it is asked. Two hooks of one type and name are distinguished by their address, which is in no ID.
func (s *Snapshot) hookQuery(hook flaggerv1.CanaryWebhook, attempt string, since time.Time) release.Query {
	address := fnv.New32a()
	_, _ = address.Write([]byte(hook.URL)) // never fails
	return release.Query{
		ID:    shortID(hookGateName(hook)) + "/" + strconv.FormatUint(uint64(address.Sum32()), 36) + "/" + s.run() + "/" + attempt,
		Since: since,
	}
}

// hookQueryGate is a gate that waits for the answer of a webhook. A gate that is polled asks with a key of its own each time,
// else a receiver that remembers keys would repeat its first answer indefinitely.
func (s *Snapshot) hookQueryGate(p release.Query, hook flaggerv1.CanaryWebhook, phase flaggerv1.CanaryPhase, message string) release.Gate {
	moment := ""
	if !p.Since.IsZero() {
		moment = p.Since.UTC().Format(time.RFC3339Nano)
	}
	p.Request = HookQuery{Hook: hook, Phase: phase, Key: digest(s.UID, s.run(), p.ID, string(phase), moment)}
	return release.NewQueryGate(hookGateName(hook), p, message)
}

// EventKey tells the receiver of an event that two calls are one: a message that was sent again, or that still holds and
// was told again after a restart. A text that is said twice within one window is one event to it.
func EventKey(uid string, status flaggerv1.CanaryStatus, hook flaggerv1.CanaryWebhook, event release.Event) string {
	window := ""
	if status.Serin != nil && status.Serin.Window != nil {
		window = status.Serin.Window.Start.UTC().Format(time.RFC3339Nano)
	}
	return digest(uid, RunOf(uid, status), hookGateName(hook), hook.URL, event.Phase, window, string(event.Type), event.Message)
}

// hookGateName is the name of the gate of a webhook.
func hookGateName(hook flaggerv1.CanaryWebhook) string { return string(hook.Type) + "/" + hook.Name }

// metricQuery names one check of the open window, which is asked when the window is over. Its question is added then.
func (s *Snapshot) metricQuery(check Check) release.Query {
	return release.Query{
		ID:    "metric/" + strconv.Itoa(check.Index) + "/" + shortID(check.Metric.Name) + "/" + string(check.Source) + "/" + s.run() + "/" + s.windowAttempt(),
		Since: s.windowEnd(),
	}
}

// shortID is a name as a part of an ID. Answers are kept by their IDs, and a name may be as long as a whole Canary.
func shortID(name string) string {
	if len(name) <= maxName {
		return name
	}
	return digest(name)
}

// letterDigest are ten letters derived from what they are for.
func letterDigest(parts ...string) string {
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

// uuidDigest is a UUID derived in the same way, for fields that hold one.
func uuidDigest(parts ...string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strings.Join(parts, "\x00"))).String()
}

// RunOf names the attempt that a status is about, as the commands of users name it. In a status of another controller the
// name comes from the fields of the API.
func RunOf(uid string, status flaggerv1.CanaryStatus) string {
	if status.Serin != nil && status.Serin.Run != "" {
		return status.Serin.Run
	}
	return newRunID(uid, status)
}

func (s *Snapshot) run() string { return RunOf(s.UID, s.Status) }

// newRunID makes that name of what begins. The hash of the API knows nothing of configuration, of which another one may come
// in the same second.
func newRunID(uid string, status flaggerv1.CanaryStatus) string {
	began, revision := "", ""
	if status.Serin != nil {
		revision = status.Serin.Revision
	}
	if c := findCondition(status, flaggerv1.ConditionPromoted); c != nil {
		began = c.LastUpdateTime.UTC().Format(time.RFC3339)
	}
	return digest(uid, status.LastAppliedSpec, revision, began)[:16]
}
