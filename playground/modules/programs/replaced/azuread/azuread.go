// Package azuread replaces Prometheus' authentication with Microsoft Entra ID (Azure AD) for remote write.
//
// The original links the SDK of Azure. The playground's Prometheus uses no remote write. The package must declare what
// Prometheus uses of the original, and nothing else.
package azuread

import (
	"errors"
	"net/http"
)

// AzureADConfig is the configuration, which has no effect.
type AzureADConfig struct{}

// NewAzureADRoundTripper returns an error.
func NewAzureADRoundTripper(*AzureADConfig, http.RoundTripper) (http.RoundTripper, error) {
	return nil, errors.New("the Prometheus of the playground is built without Azure AD")
}
