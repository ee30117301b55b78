package cloudwatch

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/serin-dev/serin/internal/outbound"
)

// role is under whose name requests are signed.
type role struct{ region, profile, arn string }

// Region is that of the process, which its environment names.
func (a *Ambient) Region() (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.region == "" {
		env, err := config.NewEnvConfig()
		if err != nil {
			return "", errNoRegion
		}
		a.region = env.Region
	}
	if a.region == "" {
		return "", errNoRegion
	}
	return a.region, nil
}

var errNoRegion = errors.New("the region of Amazon's services is not known: set AWS_REGION in the environment of the controller")

// noBody is the hash of a body that is empty.
const noBody = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Signer signs requests without a body to Amazon's managed Prometheus. Empty: the region, the profile and the role of the
// process.
func (a *Ambient) Signer(region, profile, arn string) func(ctx context.Context, r *http.Request, now time.Time) error {
	return func(ctx context.Context, r *http.Request, now time.Time) error {
		if region == "" {
			own, err := a.Region()
			if err != nil {
				return err
			}
			region = own
		}
		if !regions.MatchString(region) {
			return errors.New("sigv4.region is not the name of a region such as eu-west-1: correct it")
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		cache, err := a.of(ctx, role{region, profile, arn})
		if err != nil {
			return outbound.Unreachable(errNoCredentials)
		}
		found, err := cache.Retrieve(ctx)
		if err != nil { // the library's text may have what was sent
			return outbound.Unreachable(errNoCredentials)
		}
		return v4.NewSigner().SignHTTP(ctx, found, r, noBody, "aps", region, now)
	}
}

// of are the credentials of a role, kept while they are good.
func (a *Ambient) of(ctx context.Context, who role) (*aws.CredentialsCache, error) {
	if who.profile == "" && who.arn == "" {
		return a.load(ctx, who.region)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.others[who]; known != nil {
		return known, nil
	}
	options := []func(*config.LoadOptions) error{config.WithRegion(who.region)}
	if who.profile != "" {
		options = append(options, config.WithSharedConfigProfile(who.profile))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	cache := aws.NewCredentialsCache(loaded.Credentials)
	if who.arn != "" {
		cache = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(loaded), who.arn))
	}
	if a.others == nil {
		a.others = map[role]*aws.CredentialsCache{}
	}
	a.others[who] = cache
	return cache, nil
}
