// Package googlecloud obtains access tokens for APIs of Google Cloud.
//
// It knows the JSON keys of service accounts and where a process in the cloud finds its own credentials. It must not know
// which API a token is for, beyond its scope, or what is requested there.
package googlecloud

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/serin-dev/serin/internal/outbound"
)

// lookupTimeout bounds the lookup of the credentials of the process.
const lookupTimeout = 10 * time.Second

var errNoCredentials = errors.New("no credentials of the controller for Google's services: bind its service account to one of Google's, or give a serviceAccountKey")

var errNoProject = errors.New("the metadata server has not returned the project of the controller; add a secret with the key project to be independent of it")

// DefaultCredentials are the credentials of the process, from its environment or its node. They are looked up when they are
// first needed, and then reused. They are fetched with the library's own client, because they are at addresses that users
// must not reach.
type DefaultCredentials struct {
	scope       string
	mu          sync.Mutex
	credentials *google.Credentials
}

// NewDefaultCredentials returns the credentials of the process for one scope. It sends no request.
func NewDefaultCredentials(scope string) *DefaultCredentials {
	return &DefaultCredentials{scope: scope}
}

// Token returns a token.
func (a *DefaultCredentials) Token(ctx context.Context) (outbound.Secret, error) {
	token, _, err := a.lookUp(ctx)
	return token, err
}

// TokenAndProject returns a token, and the project of the process; empty if its credentials contain none. A project that the
// metadata server does not return at the moment is an UnreachableError.
func (a *DefaultCredentials) TokenAndProject(ctx context.Context) (token outbound.Secret, project string, err error) {
	token, found, err := a.lookUp(ctx)
	switch {
	case err != nil:
		return "", "", err
	case lacksProject(found):
		return "", "", outbound.NewUnreachableError(errNoProject)
	default:
		return token, found.ProjectID, nil
	}
}

func (a *DefaultCredentials) lookUp(ctx context.Context) (outbound.Secret, *google.Credentials, error) {
	type outcome struct {
		token       *oauth2.Token
		credentials *google.Credentials
		err         error
	}
	// The library stores the context for later tokens, and its waits do not end with a context.
	lasting := context.WithoutCancel(ctx)
	done := make(chan outcome, 1)
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	go func() {
		found, err := a.findCredentials(ctx, lasting)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		token, err := found.TokenSource.Token()
		done <- outcome{token: token, credentials: found, err: err}
	}()
	select {
	case <-ctx.Done():
		return "", nil, outbound.NewUnreachableError(errNoCredentials)
	case o := <-done:
		if o.err != nil { // its text may quote a response
			return "", nil, outbound.NewUnreachableError(errNoCredentials)
		}
		return outbound.Secret(o.token.AccessToken), o.credentials, nil
	}
}

// findCredentials looks up the credentials, with a context that they store. Lookups are sequential; one whose own context ended while
// it waited for others is dropped, so that they do not accumulate while the metadata server fails.
func (a *DefaultCredentials) findCredentials(ctx, lasting context.Context) (*google.Credentials, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.credentials != nil {
		return a.credentials, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	found, err := google.FindDefaultCredentials(lasting, a.scope)
	if err != nil {
		return nil, err
	}
	if !lacksProject(found) {
		a.credentials = found
	}
	return found, nil
}

// lacksProject reports whether credentials are those of the metadata server, and it did not return the project: the library ignores
// this error. On a new node, the server may not be ready when the first query is sent.
func lacksProject(found *google.Credentials) bool { return found.JSON == nil && found.ProjectID == "" }

// ServiceAccount creates tokens with the JSON key of a service account. The key signs the token, so that no request is sent
// to an address in the key. Every other form of credentials is an error, because some of them run commands or read files.
type ServiceAccount struct{ source oauth2.TokenSource }

// NewServiceAccount parses a JSON key. Its errors do not quote the key.
func NewServiceAccount(key []byte, scope string) (*ServiceAccount, error) {
	source, err := google.JWTAccessTokenSourceWithScope(key, scope)
	if err != nil {
		return nil, errors.New("not the JSON key of a service account")
	}
	return &ServiceAccount{source: source}, nil
}

// Token returns a signed token.
func (a *ServiceAccount) Token() (outbound.Secret, error) {
	signed, err := a.source.Token()
	if err != nil {
		return "", errors.New("the key of the service account cannot sign")
	}
	return outbound.Secret(signed.AccessToken), nil
}
