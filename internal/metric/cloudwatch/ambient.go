package cloudwatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// credentialsTimeout bounds the lookup of credentials.
const credentialsTimeout = 10 * time.Second

var errNoCredentials = errors.New("no credentials of the controller for Amazon's services: give its service account a role, or the template a secret")

// Ambient contains the credentials of the process, from its environment, its service account, or its node. They are fetched
// when they are first needed, and reused while they are valid. They are fetched with the library's own client, because they
// are at addresses that users must not reach.
type Ambient struct {
	mu     sync.Mutex
	cache  *aws.CredentialsCache
	region string
	// roleCache are the credentials of roles and profiles, the most recently used last.
	roleCache []roleCredentials
}

// credentialsIn returns the credentials for calls in a region. They are the same in all regions; the region only determines which
// endpoint issues them.
func (a *Ambient) credentialsIn(region string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
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

// ambientError reports that the process has no credentials, or cannot obtain them at the moment.
type ambientError struct{ cause error }

func (e *ambientError) Error() string { return e.cause.Error() }
func (e *ambientError) Unwrap() error { return e.cause }
