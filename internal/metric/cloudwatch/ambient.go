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
	mu sync.Mutex
	// cache contains the credentials of the process; nil: there are none yet, or they could not be renewed.
	cache *aws.CredentialsCache
	// requested are the caches whose first credentials are being fetched, by region.
	requested map[string]*aws.CredentialsCache
	region    string
	// roleCache are the credentials of roles and profiles, the most recently used last.
	roleCache []roleCredentials
}

// credentialsIn returns the credentials for calls in a region.
func (a *Ambient) credentialsIn(region string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
		defer cancel()
		found, err := a.retrieve(ctx, region)
		if err != nil {
			return aws.Credentials{}, &ambientError{cause: err}
		}
		return found, nil
	})
}

// retrieve returns the credentials of the process. They are the same in all regions; the region only determines which endpoint issues
// them if the process has no region of its own. Users choose the region, and it may not exist, so a cache is shared only while its
// endpoint issues credentials.
func (a *Ambient) retrieve(ctx context.Context, region string) (aws.Credentials, error) {
	cache, err := a.load(ctx, region)
	if err != nil {
		return aws.Credentials{}, err
	}
	found, err := cache.Retrieve(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.requested, region)
	switch {
	case err == nil:
		a.cache = cache
	case a.cache == cache:
		a.cache = nil
	}
	return found, err
}

// load returns the cache of the process, or that of a region until credentials were issued.
func (a *Ambient) load(ctx context.Context, region string) (*aws.CredentialsCache, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cache != nil {
		return a.cache, nil
	}
	if cache := a.requested[region]; cache != nil {
		return cache, nil
	}
	loaded, err := config.LoadDefaultConfig(ctx, config.WithDefaultRegion(region))
	if err != nil {
		return nil, err
	}
	if a.requested == nil {
		a.requested = map[string]*aws.CredentialsCache{}
	}
	a.requested[region] = aws.NewCredentialsCache(loaded.Credentials)
	return a.requested[region], nil
}

// ambientError reports that the process has no credentials, or cannot obtain them at the moment.
type ambientError struct{ cause error }

func (e *ambientError) Error() string { return e.cause.Error() }
func (e *ambientError) Unwrap() error { return e.cause }
