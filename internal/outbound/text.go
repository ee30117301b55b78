package outbound

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// maxExcerpt is the number of characters of a response that are shown to users.
const maxExcerpt = 256

// Redact returns the parts of a URL that may be shown: scheme, host and path. User, password, query and fragment may be
// secrets.
func Redact(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "(not a URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

var urlPattern = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'<>\\]+`)

// redactText redacts every URL in a text.
func redactText(text string) string { return urlPattern.ReplaceAllStringFunc(text, Redact) }

// RedactError returns an error whose text has redacted URLs. errors.Is and errors.As still find the cause. It returns nil
// for nil.
func RedactError(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var inURL *url.Error
	switch {
	case !errors.As(err, &inURL):
		text = redactText(text)
	case inURL.Op == "parse":
		// The cause quotes the invalid part, which may be the password.
		text = "parse " + Redact(inURL.URL)
	default:
		text = inURL.Op + " " + Redact(inURL.URL) + ": " + redactText(inURL.Err.Error())
	}
	return &redactedError{text: text, cause: err}
}

type redactedError struct {
	text  string
	cause error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.cause }

// Excerpt returns the beginning of a response for users: at most 256 printable characters on one line, with redacted URLs.
func Excerpt(body []byte) string {
	// A character has at most four bytes. The remaining factor is for white space, which is collapsed.
	text := string(body[:min(len(body), 16*maxExcerpt)])
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return -1
		default:
			return r
		}
	}, strings.ToValidUTF8(text, ""))
	text = redactText(strings.Join(strings.Fields(text), " "))
	if runes := []rune(text); len(runes) > maxExcerpt {
		text = string(runes[:maxExcerpt])
	}
	return text
}
