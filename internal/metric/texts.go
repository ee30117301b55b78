package metric

import "fmt"

// The messages for MetricTemplates that cannot be queried. They are part of the API; name and namespace are the template's.

// TemplateMissing says that the template cannot be read.
func TemplateMissing(name, namespace string, err error) string {
	return fmt.Sprintf("Metric template %s.%s error: %v", name, namespace, err)
}

// SecretMissing says that the template's Secret cannot be read.
func SecretMissing(name, namespace, secret string, err error) string {
	return fmt.Sprintf("Metric template %s.%s secret %s error: %v", name, namespace, secret, err)
}

// ProviderRefused says that the provider of the template is invalid.
func ProviderRefused(name, namespace, providerType string, err error) string {
	return fmt.Sprintf("Metric template %s.%s provider %s error: %v", name, namespace, providerType, err)
}

// RenderFailed says that the template's query cannot be rendered.
func RenderFailed(name, namespace string, err error) string {
	return fmt.Sprintf("Metric template %s.%s query render error: %v", name, namespace, err)
}
