package googlecloud_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/serin-dev/serin/internal/googlecloud"
	"github.com/serin-dev/serin/internal/outbound"
)

// TestProjectIsLookedUpAgain must be the first test of the process, because the library remembers a project.
func TestProjectIsLookedUpAgain(t *testing.T) {
	var ready atomic.Bool
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		switch {
		case strings.HasSuffix(r.URL.Path, "/token"):
			_, _ = w.Write([]byte(`{"access_token":"n0de-token","expires_in":3600,"token_type":"Bearer"}`))
		case ready.Load() && strings.HasSuffix(r.URL.Path, "/project-id"):
			_, _ = w.Write([]byte("shop-17"))
		default: // the library would repeat the request after an error of the server
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(node.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(node.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	own := googlecloud.NewDefaultCredentials("scope")
	_, project, err := own.TokenAndProject(t.Context())
	if _, unreachable := errors.AsType[*outbound.UnreachableError](err); !unreachable && project != "shop-17" {
		t.Errorf("before the server is ready: project %q, %v", project, err)
	}
	if token, err := own.Token(t.Context()); err != nil || token.Reveal() != "n0de-token" {
		t.Errorf("a token that needs no project: %v", err)
	}
	ready.Store(true)
	if token, project, err := own.TokenAndProject(t.Context()); err != nil || token.Reveal() != "n0de-token" || project != "shop-17" {
		t.Errorf("afterwards: token %s of project %q, %v", token, project, err)
	}
}

func TestCredentialsOfTheProcessAreFetchedOnce(t *testing.T) {
	var fetched atomic.Int32
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		switch {
		case strings.HasSuffix(r.URL.Path, "/token"):
			fetched.Add(1)
			_, _ = w.Write([]byte(`{"access_token":"n0de-token","expires_in":3600,"token_type":"Bearer"}`))
		case strings.HasSuffix(r.URL.Path, "/project-id"):
			_, _ = w.Write([]byte("shop-17"))
		}
	}))
	t.Cleanup(node.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(node.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	own := googlecloud.NewDefaultCredentials("scope")
	for range 3 {
		token, project, err := own.TokenAndProject(t.Context())
		if err != nil || token.Reveal() != "n0de-token" || project != "shop-17" {
			t.Fatalf("%v of %s, %v", token, project, err)
		}
	}
	if n := fetched.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

func TestMissingCredentialsAreTransient(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "hunter2"))
	_, err := googlecloud.NewDefaultCredentials("scope").Token(t.Context())
	var unreachable *outbound.UnreachableError
	if !errors.As(err, &unreachable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestServiceAccountSignsItsTokens(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "serin@shop.iam.gserviceaccount.com", "token_uri": "http://169.254.169.254/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	if err != nil {
		t.Fatal(err)
	}
	account, err := googlecloud.NewServiceAccount(text, "https://www.googleapis.com/auth/pubsub")
	if err != nil {
		t.Fatal(err)
	}
	token, err := account.Token()
	if err != nil {
		t.Fatal(err)
	}
	signed, encoded, _ := cutLast(token.Reveal(), ".")
	signature, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(signed))
	if err := rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], signature); err != nil {
		t.Error(err)
	}
	_, payload, _ := strings.Cut(signed, ".")
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || !strings.Contains(string(claims), "auth/pubsub") {
		t.Errorf("claims %s, %v", claims, err)
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	return s[:max(i, 0)], s[i+1:], i >= 0
}

// TestOtherFormsOfCredentialsAreRefused covers other forms of credentials, which run commands, read files or send requests.
func TestOtherFormsOfCredentialsAreRefused(t *testing.T) {
	for _, key := range []string{
		"", "hunter2", `{"type":"authorized_user","refresh_token":"hunter2"}`,
		`{"type":"external_account","credential_source":{"executable":{"command":"/bin/hunter2"}}}`,
	} {
		if _, err := googlecloud.NewServiceAccount([]byte(key), "scope"); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", key, err)
		}
	}
}
