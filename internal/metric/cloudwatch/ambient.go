package cloudwatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// patience bounds how long credentials are looked for.
const patience = 10 * time.Second

var errNoCredentials = errors.New("no credentials of the controller for Amazon's services: give its service account a role, or the template a secret")

// Ambient are the credentials that the process has: of its environment, its service account, or its node. They are
// fetched when they are first needed and kept while they are good. They are fetched with the library's own client,
// because they come from addresses that nobody else may call.
type Ambient struct {
	mu     sync.Mutex
	cache  *aws.CredentialsCache
	region string
	// others are those of roles and profiles, those used last at the end.
	others []assumed
}

// in are the credentials for calls in a region. They are the same in all regions; one of them has to give them out.
func (a *Ambient) in(region string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		cache, err := a.load(ctx, region)
		if err != nil {
			return aws.Credentials{}, &ambientError{cause: err}
		}
		found, err := cache.Retrieve(ctx)
		if err != nil {
			return aws.Credentials{}, &ambientError{cause: err}
		}
		return found, nil
	})
}

func (a *Ambient) load(ctx context.Context, region string) (*aws.CredentialsCache, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cache != nil {
		return a.cache, nil
	}
	loaded, err := config.LoadDefaultConfig(ctx, config.WithDefaultRegion(region))
	if err != nil {
		return nil, err
	}
	a.cache = aws.NewCredentialsCache(loaded.Credentials)
	return a.cache, nil
}

// ambientError says that the process has no credentials, or cannot get them now.
type ambientError struct{ cause error }

func (e *ambientError) Error() string { return e.cause.Error() }
func (e *ambientError) Unwrap() error { return e.cause }
