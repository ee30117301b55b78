// Package dns replaces the package of the same name in github.com/go-acme/lego when Traefik is built.
//
// The original registers the clients of some 180 DNS providers, which are a third of all packages of Traefik. The
// playground requests no certificates. The package must declare what Traefik uses of the original, and nothing else.
package dns

import (
	"fmt"

	"github.com/go-acme/lego/v4/challenge"
)

// NewDNSChallengeProviderByName returns an error: there is no provider.
func NewDNSChallengeProviderByName(name string) (challenge.Provider, error) {
	return nil, fmt.Errorf("DNS provider %s: the Traefik of the playground is built without DNS providers", name)
}
