package metric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/serin-dev/serin/internal/outbound"
)

// maxToken bounds the answer of an authorisation server.
const maxToken = 64 << 10

// Grant fetches tokens with the credentials of a client, as OAuth 2.0 describes it.
type Grant struct {
	// TokenURL is where tokens are given out.
	TokenURL string
	// ID and Secret are those of the client.
	ID, Secret outbound.Secret
	// Scopes that the token shall have.
	Scopes []string

	mu   sync.Mutex
	last *oauth2.Token
}

// Check finds what is missing.
func (g *Grant) Check() error {
	if _, err := outbound.ParseURL(g.TokenURL); err != nil {
		return fmt.Errorf("the address for tokens: %w", err)
	}
	if g.ID == "" || g.Secret == "" {
		return errors.New("id or secret of the client for tokens is missing: add them")
	}
	return nil
}

// Token is one that is good for some time.
func (g *Grant) Token(ctx context.Context, client *outbound.Client) (outbound.Secret, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.last.Valid() {
		config := clientcredentials.Config{ClientID: g.ID.Reveal(), ClientSecret: g.Secret.Reveal(), TokenURL: g.TokenURL, Scopes: g.Scopes}
		token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, client.HTTP(maxToken, DefaultTimeout)))
		if err != nil {
			return "", fmt.Errorf("fetch a token: %w", withoutAnswer(err))
		}
		g.last = token
	}
	return outbound.Secret(g.last.AccessToken), nil
}

// refusals are the words of authorisation servers for what went wrong; the sentence beside them is not repeated.
var refusals = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "server_error", "temporarily_unavailable"}

// withoutAnswer is the error of the library without what the server said.
func withoutAnswer(err error) error {
	if stopped := CallError(err); stopped != nil {
		return stopped
	}
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || refused.Response == nil {
		return Unexpected("an authorisation server")
	}
	class := ""
	if slices.Contains(refusals, refused.ErrorCode) {
		class = refused.ErrorCode
	}
	return NewStatusError(outbound.Response{Code: refused.Response.StatusCode}, class, class == "temporarily_unavailable" || class == "server_error")
}
