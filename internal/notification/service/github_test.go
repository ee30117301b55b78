package service_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/notification/service"
)

// gitHubKey returns the key of an app in the format of GitHub, for a YAML string in single quotes.
var gitHubKey = sync.OnceValue(func() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return strings.ReplaceAll(string(pem.EncodeToMemory(block)), "\n", "\n\n") // a single line break becomes a space
})

// answerAsGitHub responds as GitHub does: there is one pull request, with a comment, and no deployment.
func answerAsGitHub(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/access_tokens"):
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"token":"T","expires_at":"`+now.Add(time.Hour).Format(time.RFC3339)+`"}`)
	case strings.HasSuffix(r.URL.Path, "/pulls"):
		_, _ = io.WriteString(w, `[{"number":7}]`)
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/comments"):
		_, _ = io.WriteString(w, `[{"id":4,"body":"hello"},{"id":5,"body":"<!-- notification: cart -->\nold"}]`)
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, `[]`)
	default:
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":42}`)
	}
}

func gitHubHeader(authorization string, hasBody bool) map[string]string {
	out := map[string]string{"Authorization": authorization, "Accept": "application/vnd.github+json"}
	if hasBody {
		out["Content-Type"] = "application/json"
	}
	return out
}

func TestTokensOfAGitHubAppAreReusedUntilTheyExpire(t *testing.T) {
	at := newFakeService(t, answerAsGitHub)
	c := serviceCases["github"]
	sender := c.sender(t, at)
	for _, step := range []struct {
		later  time.Duration
		tokens int
	}{{0, 1}, {58 * time.Minute, 1}, {59*time.Minute + time.Second, 2}} {
		message := service.Message{Content: content(t, c.template), Now: now.Add(step.later)}
		if err := sender.Send(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		tokens := 0
		for _, r := range at.requests {
			if strings.HasSuffix(r.call, "/access_tokens") {
				tokens++
			}
		}
		if tokens != step.tokens {
			t.Errorf("after %s: %d tokens, want %d", step.later, tokens, step.tokens)
		}
	}
}

// TestRateLimitsOfGitHubAreRetried: GitHub reports them with the status of missing permissions.
func TestRateLimitsOfGitHubAreRetried(t *testing.T) {
	for header, again := range map[string]bool{"Retry-After: 60": true, "X-RateLimit-Remaining: 0": true, "X-RateLimit-Remaining: 4000": false} {
		name, value, _ := strings.Cut(header, ": ")
		err := serviceCases["github with all calls"].send(t, t.Context(), newFakeService(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(name, value)
			w.WriteHeader(http.StatusForbidden)
		}))
		if _, got := chat.RetryAfter(err, now); err == nil || got != again {
			t.Errorf("%s: %v, again %v", header, err, got)
		}
	}
}

func TestGitHubMergesInsteadOfADeployment(t *testing.T) {
	err := serviceCases["github with all calls"].send(t, t.Context(), newFakeService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments") {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"message":"Auto-merged main into c0ffee on deployment."}`)
			return
		}
		answerAsGitHub(w, r)
	}))
	if err == nil || !strings.Contains(err.Error(), "autoMerge of the template to false") {
		t.Error(err)
	}
}
