package hook

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/rand"
)

// Payload is what a hook is told. The order of its fields is the API's.
type Payload struct {
	// Name and Namespace of the Canary.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Phase of the release.
	Phase string `json:"phase"`
	// Checksum tells one revision from another; see Checksum.
	Checksum string `json:"checksum"`
	// Metadata is what the user wrote beside the hook.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// JSON is the body of the call.
func (p Payload) JSON() ([]byte, error) { return json.Marshal(p) }

// EventPayload is the body for an event: the payload, with message, type (Normal or Warning) and time (milliseconds
// since 1970, in decimal) in its metadata, where they win over the user's. The payload given is not changed.
func EventPayload(p Payload, message, eventType, timestamp string) ([]byte, error) {
	metadata := maps.Clone(p.Metadata)
	if metadata == nil {
		metadata = make(map[string]string, 3)
	}
	metadata["eventMessage"] = message
	metadata["eventType"] = eventType
	metadata["timestamp"] = timestamp
	p.Metadata = metadata
	return p.JSON()
}

// Checksum is a short name, of consonants and digits, for what a status holds about a revision: at most ten characters,
// equal for equal input. Receivers may compare it and must not compute it.
func Checksum(trackedConfigs map[string]string, lastAppliedSpec string) string {
	sum := fnv.New32a()
	add := func(text string) { _, _ = sum.Write([]byte(text + "\x00")) } // a hash never fails to write
	add(lastAppliedSpec)
	for _, name := range slices.Sorted(maps.Keys(trackedConfigs)) {
		add(name)
		add(trackedConfigs[name])
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}
