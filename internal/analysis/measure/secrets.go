package measure

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/outbound"
)

// secretValues are values that must not appear in a result.
type secretValues struct{ values []string }

func (s *secretValues) add(value string) {
	for _, part := range []string{value, strings.TrimSpace(value)} {
		if part != "" {
			s.values = append(s.values, part)
		}
	}
}

// redact returns a text without these values.
func (s *secretValues) redact(text string) string {
	for _, value := range s.values {
		text = strings.ReplaceAll(text, value, "*****")
	}
	return text
}

// readSecretKey returns one key of a Secret in the namespace of the run.
func (m *Measurer) readSecretKey(ctx context.Context, namespace string, ref argov1.SecretKeyRef) (string, error) {
	secret := &corev1.Secret{}
	if err := m.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, secret); err != nil {
		return "", fmt.Errorf("get Secret %s.%s: %w", ref.Name, namespace, err)
	}
	value, ok := secret.Data[ref.Key]
	if !ok {
		return "", fmt.Errorf("key '%s' does not exist in secret '%s'", ref.Key, ref.Name)
	}
	return string(value), nil
}

// readCredentials returns all keys of a Secret; none if it does not exist.
func (m *Measurer) readCredentials(ctx context.Context, namespace, name string) (map[string]outbound.Secret, error) {
	secret := &corev1.Secret{}
	err := m.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get Secret %s.%s: %w", name, namespace, err)
	}
	out := make(map[string]outbound.Secret, len(secret.Data))
	for key, value := range secret.Data {
		out[key] = outbound.Secret(strings.TrimSpace(string(value)))
	}
	return out, nil
}

// hide masks the values of Secrets.
func (s *secretValues) hide(values ...outbound.Secret) {
	for _, value := range values {
		s.add(value.Reveal())
	}
}
