package outbound

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

func TestRedactKeepsSchemeHostAndPath(t *testing.T) {
	for in, want := range map[string]string{
		"http://hooks.shop/gate":                       "http://hooks.shop/gate",
		"https://u:p@hooks.shop:8443/a%2Fb?key=1#frag": "https://hooks.shop:8443/a%2Fb",
		"http://u:p ss@host/":                          "(not a URL)",
		"just text":                                    "(not a URL)",
		"":                                             "(not a URL)",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestRedactErrorHidesURLsButKeepsTheCause(t *testing.T) {
	_, parse := url.Parse("http://u:hunter2 x@host/") //nolint:staticcheck // an invalid URL is intended
	_, port := url.Parse("http://u:hunter2")          //nolint:staticcheck // an invalid URL is intended
	for _, err := range []error{
		&url.Error{Op: "Get", URL: "http://u:hunter2@host/p?key=hunter2", Err: io.EOF},
		fmt.Errorf("ask: %w", &url.Error{Op: "Get", URL: "http://host/p?key=hunter2", Err: io.EOF}),
		fmt.Errorf(`read "http://host/p?key=hunter2": %w`, io.EOF),
		&url.Error{Op: "Get", URL: "http://host", Err: errors.New(`proxy "http://u:hunter2@proxy" is gone`)},
		parse, port,
	} {
		got := RedactError(err)
		if strings.Contains(got.Error(), "hunter2") {
			t.Errorf("%v became %v, which contains the secret", err, got)
		}
		if errors.Is(err, io.EOF) && !errors.Is(got, io.EOF) {
			t.Errorf("%v lost its cause", got)
		}
	}
	if RedactError(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestExcerptIsShortPrintableAndRedacted(t *testing.T) {
	for in, want := range map[string]string{
		" no\n\tdisk \x00\x1b[31m\xff":            "no disk [31m",
		"see https://u:p@h/x?token=1, then":       "see https://h/x then",
		strings.Repeat("ä", 300):                  strings.Repeat("ä", 256),
		strings.Repeat("x", 1<<20):                strings.Repeat("x", 256),
		strings.Repeat("é", 100) + "\u202e" + "b": strings.Repeat("é", 100) + "b",
		"": "",
	} {
		if got := Excerpt([]byte(in)); got != want {
			t.Errorf("Excerpt(%.40q) = %q, want %q", in, got, want)
		}
	}
}

func TestSecretIsAlwaysRedacted(t *testing.T) {
	secret := Secret("hunter2")
	holder := struct {
		Token  Secret
		Header map[string]Secret
	}{secret, map[string]Secret{"token": secret}}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("logged", "token", secret, "holder", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("logged", "token", secret, "holder", holder)
	asJSON, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{log.String(), string(asJSON), secret.String(), secret.GoString()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		texts = append(texts, fmt.Sprintf(verb, secret), fmt.Sprintf(verb, holder), fmt.Sprintf(verb, &holder))
	}
	for _, text := range texts {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e746572") {
			t.Errorf("the secret is shown: %s", text)
		}
	}
	if secret.Reveal() != "hunter2" {
		t.Error("Reveal does not return the secret")
	}
}
