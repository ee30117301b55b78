package cloudwatch

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/serin-dev/serin/internal/outbound"
)

// role identifies the credentials with which requests are signed.
type role struct{ region, profile, arn string }

// managedPrometheus are the hosts of Amazon's managed Prometheus: of a region, of its FIPS and dual-stack endpoints, and of VPC
// endpoints, in each partition of AWS. Other names below the same domains can belong to anyone, such as a bucket's.
var managedPrometheus = regexp.MustCompile(`^(vpce-[a-z0-9-]+\.)?aps-workspaces(-fips)?\.[a-z]{2,}(-[a-z]+)+-[0-9]{1,2}\.` +
	`((vpce\.)?(amazonaws\.com|amazonaws\.com\.cn|amazonaws\.eu|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)|api\.aws|api\.amazonwebservices\.com\.cn)$`)

// IsManagedPrometheus reports whether signed requests may be sent to an address. With a signature and the session token, a
// receiver can act as the process for some minutes, so they are sent to Amazon only, and over TLS.
func IsManagedPrometheus(address *url.URL) bool {
	return address.Scheme == "https" && (address.Port() == "" || address.Port() == "443") && address.User == nil &&
		managedPrometheus.MatchString(strings.ToLower(address.Hostname()))
}

// rolePattern matches the ARNs of roles. IAM decides whether the process may assume a role.
var rolePattern = regexp.MustCompile(`^arn:aws(-[a-z]+)*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}$`)

// maxRoles bounds the cached credentials of roles and profiles, because users choose their names.
const maxRoles = 32

// roleCredentials are the credentials of a role or a profile.
type roleCredentials struct {
	role
	credentials *aws.CredentialsCache
}

// Region returns the region of the process, from its environment.
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

var errNotAmazon = errors.New("the address is not that of Amazon's managed Prometheus, such as https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1, " +
	"so the request is not signed: correct it, or leave sigv4 out")

var errNoRegion = errors.New("the region of Amazon's services is not known: set AWS_REGION in the environment of the controller")

// emptyBodyHash is the hash of an empty body.
const emptyBodyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Signer returns a function that signs requests without a body to Amazon's managed Prometheus. Empty arguments mean the
// region, the profile and the role of the process.
func (a *Ambient) Signer(region, profile, arn string) func(ctx context.Context, r *http.Request, now time.Time) error {
	return func(ctx context.Context, r *http.Request, now time.Time) error {
		if region == "" {
			own, err := a.Region()
			if err != nil {
				return err
			}
			region = own
		}
		if !regionPattern.MatchString(region) {
			return errors.New("sigv4.region is not the name of a region such as eu-west-1: correct it")
		}
		if arn != "" && !rolePattern.MatchString(arn) {
			return errors.New("sigv4.roleArn is not the name of a role such as arn:aws:iam::123456789012:role/metrics: correct it")
		}
		if !IsManagedPrometheus(r.URL) {
			return errNotAmazon
		}
		ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
		defer cancel()
		found, err := a.retrieveFor(ctx, role{region, profile, arn})
		if err != nil { // the library's text may contain the request
			return outbound.NewUnreachableError(errNoCredentials)
		}
		return v4.NewSigner().SignHTTP(ctx, found, r, emptyBodyHash, "aps", region, now)
	}
}

// retrieveFor returns the credentials of a role or a profile, or those of the process.
func (a *Ambient) retrieveFor(ctx context.Context, wanted role) (aws.Credentials, error) {
	if wanted.profile == "" && wanted.arn == "" {
		return a.retrieve(ctx, wanted.region)
	}
	cache, err := a.credentialsOf(ctx, wanted)
	if err != nil {
		return aws.Credentials{}, err
	}
	return cache.Retrieve(ctx)
}

// credentialsOf returns the credentials of a role or a profile. They are cached while they are valid and among the most recently used
// ones.
func (a *Ambient) credentialsOf(ctx context.Context, wanted role) (*aws.CredentialsCache, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.roleCache, func(known roleCredentials) bool { return known.role == wanted }); i >= 0 {
		known := a.roleCache[i]
		a.roleCache = append(slices.Delete(a.roleCache, i, i+1), known) // now the most recently used
		return known.credentials, nil
	}
	options := []func(*config.LoadOptions) error{config.WithRegion(wanted.region)}
	if wanted.profile != "" {
		options = append(options, config.WithSharedConfigProfile(wanted.profile))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	cache := aws.NewCredentialsCache(loaded.Credentials)
	if wanted.arn != "" {
		cache = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(loaded), wanted.arn))
	}
	if len(a.roleCache) >= maxRoles {
		a.roleCache = slices.Delete(a.roleCache, 0, 1)
	}
	a.roleCache = append(a.roleCache, roleCredentials{wanted, cache})
	return cache, nil
}
