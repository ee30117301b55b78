package stackdriver

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/serin-dev/serin/internal/outbound"
)

// patience bounds how long credentials are looked for.
const patience = 10 * time.Second

var errNoCredentials = errors.New("no credentials of the controller for Google's services: bind its service account, or give the template a serviceAccountKey")

// ambient are the credentials that the process has: of its environment or its node. They are looked for when they are
// first needed, and kept. They are fetched with the library's own client, because they come from addresses that nobody
// else may call.
type ambient struct {
	mu    sync.Mutex
	found *google.Credentials
}

// token is a token and the project that the process belongs to, which may not be known.
func (a *ambient) token(ctx context.Context) (token outbound.Secret, project string, err error) {
	type outcome struct {
		token   *oauth2.Token
		project string
		err     error
	}
	// The library keeps the context for tokens to come, and waits without one.
	lasting := context.WithoutCancel(ctx)
	done := make(chan outcome, 1)
	go func() {
		found, err := a.find(lasting)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		token, err := found.TokenSource.Token()
		done <- outcome{token: token, project: found.ProjectID, err: err}
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-ctx.Done():
		return "", "", outbound.Unreachable(errNoCredentials)
	case o := <-done:
		if o.err != nil { // its text may quote an answer
			return "", "", outbound.Unreachable(errNoCredentials)
		}
		return outbound.Secret(o.token.AccessToken), o.project, nil
	}
}

func (a *ambient) find(ctx context.Context) (*google.Credentials, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.found != nil {
		return a.found, nil
	}
	found, err := google.FindDefaultCredentials(ctx, scope)
	if err != nil {
		return nil, err
	}
	a.found = found
	return found, nil
}
