package outbound

import (
	"fmt"
	"io"
	"log/slog"
)

const redactedText = "[redacted]"

// Secret is a text that shows itself nowhere: not in formatted text, JSON or logs. Its zero value is no secret.
type Secret string

// Reveal is the text itself, for the one place that sends it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret.
func (s Secret) String() string { return redactedText }

// GoString hides the secret.
func (s Secret) GoString() string { return redactedText }

// Format hides the secret from every verb of package fmt; %d would otherwise print it along with its complaint.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedText) }

// MarshalJSON hides the secret.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redactedText + `"`), nil }

// MarshalText hides the secret from other encoders. A map that has it as a key shows it all the same.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redactedText), nil }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redactedText) }
