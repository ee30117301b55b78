// Package googleiam replaces Prometheus' authentication with Google IAM for remote write.
//
// The original links the SDK of Google Cloud. The playground's Prometheus uses no remote write. The package must declare
// what Prometheus uses of the original, and nothing else.
package googleiam

import (
	"errors"
	"net/http"
)

// Config is the configuration, which has no effect.
type Config struct{}

// NewRoundTripper returns an error.
func NewRoundTripper(*Config, http.RoundTripper) (http.RoundTripper, error) {
	return nil, errors.New("the Prometheus of the playground is built without Google IAM")
}
