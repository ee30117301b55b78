package outbound

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestPolicyAppliesToLibraries(t *testing.T) {
	var seen string
	here := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		w.Header().Set("X-Here", "yes")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("hello"))
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, here+"/a", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer t")
	answer, err := newTestClient(t).HTTP(1<<10, time.Minute).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || string(body) != "hello" || answer.StatusCode != 202 || answer.Header.Get("X-Here") != "yes" || seen != "POST /a Bearer t body" {
		t.Errorf("got %d %s, %v; seen %q", answer.StatusCode, body, err, seen)
	}
	refused, err := New(Policy{}).HTTP(1<<10, time.Minute).Do(request.Clone(t.Context()))
	if err == nil {
		refused.Body.Close()
	}
	if _, ok := errors.AsType[*RefusedError](err); !ok {
		t.Errorf("%v, want a RefusedError", err)
	}
}

func TestResponsesToLibrariesAreBounded(t *testing.T) {
	endless := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
				return
			}
		}
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, endless, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := newTestClient(t).HTTP(1<<10, time.Minute).Do(request)
	if !errors.Is(err, ErrTooLong) {
		t.Errorf("got %v", err)
	}
	if err == nil {
		answer.Body.Close()
	}
}

func TestLibrariesAreNotRedirectedToAnotherHost(t *testing.T) {
	called := false
	other := serve(t, func(http.ResponseWriter, *http.Request) { called = true })
	here := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other, http.StatusTemporaryRedirect)
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		request, err := http.NewRequestWithContext(t.Context(), method, here, strings.NewReader("password=hunter2"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := newTestClient(t).HTTP(1<<10, time.Minute).Do(request)
		if err != nil || answer.StatusCode != http.StatusTemporaryRedirect || called {
			t.Errorf("%s: %v, %v, called %t", method, answer, err, called)
		}
		if err == nil {
			answer.Body.Close()
		}
	}
}

// withToken is a transport that adds credentials, like that of a kubeconfig.
type withToken struct{}

func (withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer of-the-process")
	return http.DefaultTransport.RoundTrip(r)
}

func TestCredentialsOfTheProcessAreSentToTheirServerOnly(t *testing.T) {
	var stolen string
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") })
	own := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, other, http.StatusFound)
			return
		}
		_, _ = w.Write([]byte(r.Header.Get("Authorization")))
	})
	client, err := NewForServer(own, withToken{})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(t.Context(), get(own+"/a"))
	if err != nil || string(answer.Body) != "Bearer of-the-process" {
		t.Errorf("its own server: %s, %v", answer.Body, err)
	}
	if answer, err := client.Do(t.Context(), get(own+"/redirect")); err != nil || answer.Code != http.StatusFound {
		t.Errorf("a redirect: %d, %v", answer.Code, err)
	}
	for _, address := range []string{other, strings.Replace(own, "127.0.0.1", "localhost", 1), strings.Replace(own, "http:", "https:", 1)} {
		if _, err := client.Do(t.Context(), get(address)); err == nil {
			t.Errorf("%s was called", address)
		}
	}
	if stolen != "" {
		t.Errorf("another server received %s", stolen)
	}
	if _, err := NewForServer("kubernetes", withToken{}); err == nil {
		t.Error("an address without scheme is accepted")
	}
}
