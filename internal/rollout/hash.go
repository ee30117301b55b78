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

// PodHash names the revision of a template, as the user wrote it: ReplicaSets are found again by it, so it may never
// change. collisions sets templates apart whose names are the same.
func PodHash(template corev1.PodTemplateSpec, collisions *int32) (string, error) {
	template.CreationTimestamp.Reset() // of the template in memory only: it is no pointer
	text, err := json.Marshal(template)
	if err != nil {
		return "", fmt.Errorf("write template: %w", err)
	}
	return encode(apart(text, collisions)), nil
}

// OlderPodHashes are the names that earlier controllers gave the revision of a template: with an empty moment of creation
// in its text, and from before it had a text, as Deployments have theirs. Of the latter only those are known that were
// made with the same library.
func OlderPodHashes(template corev1.PodTemplateSpec, collisions *int32) ([]string, error) {
	template.CreationTimestamp.Reset()
	dated := struct {
		Metadata datedMeta      `json:"metadata"`
		Spec     corev1.PodSpec `json:"spec"`
	}{datedMeta{
		Name: template.Name, GenerateName: template.GenerateName, Namespace: template.Namespace,
		Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers,
	}, template.Spec}
	text, err := json.Marshal(dated)
	if err != nil {
		return nil, fmt.Errorf("write template: %w", err)
	}
	return []string{encode(apart(text, collisions)), encode(apart([]byte(dump.ForHash(template)), collisions))}, nil
}

// datedMeta is what a template has of metadata, in the order and with the empty field that it once was written with.
type datedMeta struct {
	Name              string            `json:"name,omitempty"`
	GenerateName      string            `json:"generateName,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	CreationTimestamp any               `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
}

// apart sets a text apart from one that has the same name.
func apart(text []byte, collisions *int32) []byte {
	if collisions != nil {
		var suffix [8]byte
		binary.LittleEndian.PutUint32(suffix[:], uint32(*collisions)) //nolint:gosec // a count, hashed bit by bit
		text = append(text, suffix[:]...)
	}
	return text
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
