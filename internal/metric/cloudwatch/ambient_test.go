package cloudwatch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/release"
)

// removeCredentials removes all sources of credentials that the library reads.
func removeCredentials(t *testing.T) {
	nothing := filepath.Join(t.TempDir(), "nothing")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_ROLE_ARN": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": nothing, "AWS_SHARED_CREDENTIALS_FILE": nothing,
	} {
		t.Setenv(name, value)
	}
}

func TestCredentialsOfTheProcessAreFetchedOnce(t *testing.T) {
	removeCredentials(t)
	var fetched atomic.Int32
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		_, _ = w.Write([]byte(`{"AccessKeyId":"AKIDEXAMPLE","SecretAccessKey":"s","Token":"t","Expiration":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`))
	}))
	t.Cleanup(agent.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.URL+"/v1/credentials")
	ambient := &Ambient{}
	for _, region := range []string{"eu-west-1", "us-east-1", "eu-west-1"} {
		found, err := ambient.credentialsIn(region).Retrieve(t.Context())
		if err != nil || found.AccessKeyID != "AKIDEXAMPLE" {
			t.Fatalf("%s: %v", region, err)
		}
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("the credentials were fetched %d times, want once", n)
	}
}

func TestMissingCredentialsAreTransient(t *testing.T) {
	removeCredentials(t)
	_, err := (&Ambient{}).credentialsIn("eu-west-1").Retrieve(t.Context())
	if outcome := metric.OutcomeOf(convertError(err)); outcome != release.Unreachable || !errors.Is(convertError(err), errNoCredentials) {
		t.Errorf("got %v with outcome %s, want %v with outcome %s", convertError(err), outcome, errNoCredentials, release.Unreachable)
	}
}
