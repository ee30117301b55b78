package outbound

import (
	"fmt"
	"io"
	"log/slog"
)

const redactedText = "[redacted]"

// Secret is a string that is redacted in formatted text, JSON and logs. Its zero value means that there is no secret.
type Secret string

// Reveal returns the secret, for the code that sends it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret.
func (s Secret) String() string { return redactedText }

// GoString hides the secret.
func (s Secret) GoString() string { return redactedText }

// Format hides the secret from every verb of package fmt; for %d, the package would otherwise print it in its error.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedText) }

// MarshalJSON hides the secret.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redactedText + `"`), nil }

// MarshalText hides the secret from other encoders. A secret that is the key of a map is not hidden.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redactedText), nil }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redactedText) }
