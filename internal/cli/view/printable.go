package view

import (
	"reflect"
	"strings"
	"unicode"
)

// printable returns a document without the control characters in its texts, each on one line: names and messages come from the cluster,
// and must not move the cursor, change the colours of the terminal or the direction of the text. Every function that renders a document
// calls it first, so that no text of the document is forgotten. A document without such characters is not copied.
//
// Maps and interfaces are not supported: no document has them.
func printable[T any](document T) T {
	v := reflect.ValueOf(&document).Elem()
	if isPrintable(v) {
		return document
	}
	out := document
	copyPrintable(reflect.ValueOf(&out).Elem(), v)
	return out
}

// isPrintable reports whether printable would change nothing.
func isPrintable(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return SingleLine(v.String()) == v.String()
	case reflect.Pointer:
		return v.IsNil() || isPrintable(v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			if !isPrintable(v.Index(i)) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && !isPrintable(v.Field(i)) {
				return false
			}
		}
	default: // numbers and booleans
	}
	return true
}

// copyPrintable copies a value without control characters. Unexported fields, such as those of times, are copied unchanged.
func copyPrintable(out, v reflect.Value) {
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(SingleLine(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			copyPrintable(out.Elem(), v.Elem())
		}
	case reflect.Slice:
		if v.IsNil() {
			return
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			copyPrintable(out.Index(i), v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				copyPrintable(out.Field(i), v.Field(i))
			}
		}
	default: // numbers and booleans
	}
}

// SingleLine returns a text on one line, without control characters and with single blanks.
func SingleLine(text string) string {
	if isPlain(text) {
		return text
	}
	return strings.Join(strings.Fields(withoutControls(text)), " ")
}

// isPlain reports whether a text has only printable characters of ASCII and single blanks between them, as almost all texts do.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c > '~':
			return false
		case c == ' ' && (i == 0 || i == len(text)-1 || text[i-1] == ' '):
			return false
		}
	}
	return true
}

// withoutControls replaces every blank, line break and tab by a blank, and removes all characters that are not printed.
func withoutControls(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		default:
			return r
		}
	}, strings.ToValidUTF8(text, ""))
}

// PlainText returns a text without styles, such as an error message, without control characters except for the ends of its lines. Blanks
// are unchanged.
func PlainText(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = withoutControls(line)
	}
	return strings.Join(lines, "\n")
}
