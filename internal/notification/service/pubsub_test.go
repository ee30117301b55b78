package service_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/outbound"
)

// googleKey returns the JSON key of a service account in Google's format. Its token_uri must not be called.
var googleKey = sync.OnceValue(func() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "private_key_id": "k1", "client_email": "serin@shop.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"token_uri":   "http://169.254.169.254/token",
	})
	if err != nil {
		panic(err)
	}
	return string(text)
})

func TestKeyFileOfPubSubIsReadForEachMessage(t *testing.T) {
	at := newFakeService(t, respond(200, "{}"))
	file := filepath.Join(t.TempDir(), "key.json")
	sender, err := newSender(t, "gcppubsub", "{project: shop, topic: releases, keyFile: "+file+", apiURL: '"+at.URL+"'}")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ key, want string }{
		{"", "keyFile cannot be read"}, {"Pa55word", "keyFile is not the JSON key"}, {googleKey(), ""},
	} {
		if step.key != "" {
			if err := os.WriteFile(file, []byte(step.key), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := sender.Send(t.Context(), service.Message{Content: content(t, "message: hi")})
		switch {
		case step.want == "" && (err != nil || len(at.requests) != 1):
			t.Errorf("%v, requests %v", err, at.requests)
		case step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want) || strings.Contains(err.Error(), "Pa55word") || len(at.requests) > 0):
			t.Errorf("%v, want %q; requests %v", err, step.want, at.requests)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPubSubUsesTheIdentityOfTheController checks that the controller's token is sent to Google if no key is configured.
func TestPubSubUsesTheIdentityOfTheController(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		_, _ = io.WriteString(w, `{"access_token":"n0de-token","expires_in":3600,"token_type":"Bearer"}`)
	}))
	t.Cleanup(node.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(node.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	var got []string
	client, err := outbound.NewForServer("https://pubsub.googleapis.com", roundTrip(func(r *http.Request) (*http.Response, error) {
		got = append(got, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	sender, err := service.New(client, outbound.Policy{}, notification.Service{Type: "gcppubsub", Options: []byte(`{"project":"shop","topic":"releases"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(t.Context(), service.Message{Content: content(t, "message: hi")}); err != nil {
		t.Fatal(err)
	}
	if want := "POST https://pubsub.googleapis.com/v1/projects/shop/topics/releases:publish Bearer n0de-token"; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPubSubWithoutCredentialsIsRetried(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "Pa55word"))
	sender, err := newSender(t, "gcppubsub", "{project: shop, topic: releases}")
	if err != nil {
		t.Fatal(err)
	}
	err = sender.Send(t.Context(), service.Message{Content: content(t, "message: hi")})
	if _, again := chat.RetryAfter(err, now); err == nil || !again || strings.Contains(err.Error(), "Pa55word") {
		t.Errorf("%v, again %v", err, again)
	}
}

// TestNamespaceNeedsItsOwnKeyForPubSub checks that the configuration of a namespace cannot use files or the identity of the
// controller.
func TestNamespaceNeedsItsOwnKeyForPubSub(t *testing.T) {
	for options, good := range map[string]bool{
		"{project: shop, topic: releases}":                                           false,
		"{project: shop, topic: releases, keyFile: /var/run/secrets/key.json}":       false,
		"{project: shop, topic: releases, serviceAccountKey: '" + googleKey() + "'}": true,
	} {
		config := notification.NewConfig(map[string]string{"service.gcppubsub": options}, nil)
		for own, config := range map[bool]*notification.Config{false: config, true: config.ForNamespace("shop")} {
			s, err := config.Service("gcppubsub")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := service.New(nil, outbound.Policy{}, s); (err == nil) != (good || !own) || err != nil && !strings.Contains(err.Error(), "set serviceAccountKey") {
				t.Errorf("%s, configured by the namespace %v: %v", options, own, err)
			}
		}
	}
}
