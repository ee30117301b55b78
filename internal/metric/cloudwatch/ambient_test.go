package cloudwatch

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
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

// TestARegionWithoutCredentialsFailsAlone: users choose the regions, and the endpoint of one of them need not issue credentials.
func TestARegionWithoutCredentialsFailsAlone(t *testing.T) {
	removeCredentials(t)
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	var refused atomic.Value
	refused.Store("nowhere-west-1")
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "/"+refused.Load().(string)+"/sts/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>`+
			`<SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(sts.Close)
	t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
	file := filepath.Join(t.TempDir(), "config")
	content := "[default]\nrole_arn = arn:aws:iam::123456789012:role/serin\nsource_profile = base\n[profile base]\naws_access_key_id = AKIDBASE\naws_secret_access_key = s\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CONFIG_FILE", file)
	ambient := &Ambient{}
	obtained := func(region string) bool {
		found, err := ambient.credentialsIn(region).Retrieve(t.Context())
		return err == nil && found.AccessKeyID == "AKIDROLE"
	}
	if obtained("nowhere-west-1") {
		t.Fatal("the region issues credentials")
	}
	if !obtained("eu-west-1") {
		t.Error("after a region without credentials, another one has none either")
	}
	refused.Store("eu-west-1") // the credentials have expired and cannot be renewed there
	if obtained("us-east-1"); !obtained("us-east-1") {
		t.Error("after a region ceased to issue credentials, another one has none either")
	}
	if len(ambient.requested) > 0 {
		t.Errorf("%d regions are stored without a call", len(ambient.requested))
	}
}

func TestMissingCredentialsAreTransient(t *testing.T) {
	removeCredentials(t)
	_, err := (&Ambient{}).credentialsIn("eu-west-1").Retrieve(t.Context())
	if outcome := metric.OutcomeOf(convertError(err)); outcome != release.Unreachable || !errors.Is(convertError(err), errNoCredentials) {
		t.Errorf("got %v with outcome %s, want %v with outcome %s", convertError(err), outcome, errNoCredentials, release.Unreachable)
	}
}
