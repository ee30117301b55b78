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

// maxToken bounds the response of an authorisation server, in bytes.
const maxToken = 64 << 10

// Grant requests tokens by the client credentials grant of OAuth 2.0. It is safe for concurrent use.
type Grant struct {
	// TokenURL is the token endpoint of the authorisation server.
	TokenURL string
	// ID and Secret are the credentials of the client.
	ID, Secret outbound.Secret
	// Scopes are the requested scopes of the token.
	Scopes []string

	mu   sync.Mutex
	last *oauth2.Token
}

// Check returns an error if a required field is missing or invalid.
func (g *Grant) Check() error {
	if _, err := outbound.ParseURL(g.TokenURL); err != nil {
		return fmt.Errorf("the address for tokens: %w", err)
	}
	if g.ID == "" || g.Secret == "" {
		return errors.New("id or secret of the client for tokens is missing: add them")
	}
	return nil
}

// Token returns a valid token. It requests one if the last has expired.
func (g *Grant) Token(ctx context.Context, client *outbound.Client) (outbound.Secret, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.last.Valid() {
		config := clientcredentials.Config{ClientID: g.ID.Reveal(), ClientSecret: g.Secret.Reveal(), TokenURL: g.TokenURL, Scopes: g.Scopes}
		token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, LibraryClient(client, maxToken, DefaultTimeout)))
		if err != nil {
			return "", fmt.Errorf("fetch a token: %w", withoutResponse(err))
		}
		g.last = token
	}
	return outbound.Secret(g.last.AccessToken), nil
}

// grantErrorCodes are the error codes of authorisation servers. Their descriptions are not repeated.
var grantErrorCodes = []string{"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "server_error", "temporarily_unavailable"}

// withoutResponse returns the error of the library without the text of the server.
func withoutResponse(err error) error {
	if stopped := CallError(err); stopped != nil {
		return stopped
	}
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || refused.Response == nil {
		return Unexpected("an authorisation server")
	}
	class := ""
	if slices.Contains(grantErrorCodes, refused.ErrorCode) {
		class = refused.ErrorCode
	}
	return NewStatusError(outbound.Response{Code: refused.Response.StatusCode}, class, class == "temporarily_unavailable" || class == "server_error")
}
