package rollout

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// PodHash names the revision of a template, as the user wrote it: ReplicaSets are found again by it, so it may never
// change. collisions sets templates apart whose names are the same.
func PodHash(template corev1.PodTemplateSpec, collisions *int32) (string, error) {
	template.CreationTimestamp.Reset() // of the template in memory only: it is no pointer
	text, err := json.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("write template: %w", err)
	}
	if collisions != nil {
		var suffix [8]byte
		binary.LittleEndian.PutUint32(suffix[:], uint32(*collisions)) //nolint:gosec // a count, hashed bit by bit
		text = append(text, suffix[:]...)
	}
	return encode(text), nil
}

// StepHash names a list of steps. Where it changes, a release begins again.
func StepHash(steps []argov1.CanaryStep) (string, error) {
	text, err := json.Marshal(steps)
	if err != nil {
		return "", fmt.Errorf("write steps: %w", err)
	}
	return encode(text), nil
}

// encode is a short name for a text, without vowels and without characters that look like others: each character of the
// decimal hash is taken modulo the length of the alphabet, as Kubernetes does for its ReplicaSets.
func encode(text []byte) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	sum := fnv.New32a()
	_, _ = sum.Write(text) // never fails
	digits := []byte(strconv.FormatUint(uint64(sum.Sum32()), 10))
	for i, digit := range digits {
		digits[i] = alphabet[int(digit)%len(alphabet)]
	}
	return string(digits)
}
