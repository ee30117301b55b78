package metric

import "fmt"

// The messages for MetricTemplates that cannot be queried. They are part of the API; name and namespace are the template's.

// TemplateMissing returns the message for a template that cannot be read.
func TemplateMissing(name, namespace string, err error) string {
	return fmt.Sprintf("Metric template %s.%s error: %v", name, namespace, err)
}

// SecretMissing returns the message for a template whose Secret cannot be read.
func SecretMissing(name, namespace, secret string, err error) string {
	return fmt.Sprintf("Metric template %s.%s secret %s error: %v", name, namespace, secret, err)
}

// ProviderRefused returns the message for a template with an invalid provider.
func ProviderRefused(name, namespace, providerType string, err error) string {
	return fmt.Sprintf("Metric template %s.%s provider %s error: %v", name, namespace, providerType, err)
}

// RenderFailed returns the message for a template whose query cannot be rendered.
func RenderFailed(name, namespace string, err error) string {
	return fmt.Sprintf("Metric template %s.%s query render error: %v", name, namespace, err)
}
