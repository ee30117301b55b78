package rollout

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// PodHash returns the hash that identifies the revision of a template, as the user wrote it. ReplicaSets are found by
// it, so the function must never change. collisions distinguishes templates with the same hash.
func PodHash(template corev1.PodTemplateSpec, collisions *int32) (string, error) {
	template.CreationTimestamp.Reset() // changes only the copy: metadata is not a pointer
	text, err := json.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("write template: %w", err)
	}
	return encodeHash(appendCollisionCount(text, collisions)), nil
}

// OlderPodHashes returns the hashes that earlier controllers gave the revision of a template. One has an empty
// creationTimestamp in its encoding. The other is computed as Deployments compute theirs, and can be reproduced only if
// it was computed with the same version of the library.
func OlderPodHashes(template corev1.PodTemplateSpec, collisions *int32) ([]string, error) {
	template.CreationTimestamp.Reset()
	legacy := struct {
		Metadata legacyMetadata `json:"metadata"`
		Spec     corev1.PodSpec `json:"spec"`
	}{legacyMetadata{
		Name: template.Name, GenerateName: template.GenerateName, Namespace: template.Namespace,
		Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers,
	}, template.Spec}
	text, err := json.Marshal(legacy)
	if err != nil {
		return nil, fmt.Errorf("write template: %w", err)
	}
	return []string{encodeHash(appendCollisionCount(text, collisions)), encodeHash(appendCollisionCount([]byte(dump.ForHash(template)), collisions))}, nil
}

// legacyMetadata is the metadata of a template in the order, and with the empty field, of an earlier encoding.
type legacyMetadata struct {
	Name              string            `json:"name,omitempty"`
	GenerateName      string            `json:"generateName,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	CreationTimestamp any               `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
}

// appendCollisionCount appends a number to an encoding, to distinguish it from another one with the same hash.
func appendCollisionCount(text []byte, collisions *int32) []byte {
	if collisions != nil {
		var suffix [8]byte
		binary.LittleEndian.PutUint32(suffix[:], uint32(*collisions)) //nolint:gosec // a count, hashed bit by bit
		text = append(text, suffix[:]...)
	}
	return text
}

// StepHash identifies a list of steps. When it changes, the release starts again.
func StepHash(steps []argov1.CanaryStep) (string, error) {
	text, err := json.Marshal(steps)
	if err != nil {
		return "", fmt.Errorf("write steps: %w", err)
	}
	return encodeHash(text), nil
}

// encodeHash returns a short hash without vowels and without characters that look like others: each character of the
// decimal hash is taken modulo the length of the alphabet, as Kubernetes does for its ReplicaSets.
func encodeHash(text []byte) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	sum := fnv.New32a()
	_, _ = sum.Write(text) // never fails
	digits := []byte(strconv.FormatUint(uint64(sum.Sum32()), 10))
	for i, digit := range digits {
		digits[i] = alphabet[int(digit)%len(alphabet)]
	}
	return string(digits)
}
