package canary

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/google/uuid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// RunOf returns the ID of the run that a status describes, which commands of users contain. For a status of another controller
// it is derived from Flagger's fields.
func RunOf(uid string, status flaggerv1.CanaryStatus) string {
	if status.Serin != nil && status.Serin.Run != "" {
		return status.Serin.Run
	}
	return newRunID(uid, status)
}

func (s *Snapshot) run() string { return RunOf(s.UID, s.Status) }

// newRunID derives the ID of a run from its start. It includes Serin's revision, because Flagger's hash does not include the
// configuration, which may change within the same second.
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

func (s *Snapshot) promotionCopyID() string { return s.copyIDFor("promote", s.run()) }

func (s *Snapshot) restoreID() string { return s.copyIDFor("restore", s.run()) }

// copyIDFor derives the ID of a copy of the template for one purpose.
func (s *Snapshot) copyIDFor(purpose, revision string) string {
	return uuidDigest(s.UID, purpose, revision)
}

// digest derives an identifier from the inputs of the thing that it identifies. Nothing in a release is random: after a crash the
// same identifiers must result.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// uuidDigest is a UUID derived in the same way, for fields that hold one.
func uuidDigest(parts ...string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(strings.Join(parts, "\x00"))).String()
}

// letterDigest returns ten letters derived from the parts.
func letterDigest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	out := make([]byte, 10)
	for i := range out {
		out[i] = 'a' + sum[i]%26
	}
	return string(out)
}

// maxName limits the length of a run and of a cookie in a status, and of a name in the ID of a query, in bytes.
const maxName = 256

// shortID returns a name as a part of an ID, or its digest if it is long: answers are stored by their IDs, and the length of a
// name is limited only by the size of a Canary.
func shortID(name string) string {
	if len(name) <= maxName {
		return name
	}
	return digest(name)
}
