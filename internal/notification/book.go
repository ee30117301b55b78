package notification

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// maxBook is how many messages the annotation remembers; those told longest ago go first.
const maxBook = 100

// Book is which messages were told, with the moment in seconds since 1970. It is kept in an annotation of the Rollout,
// so that no other process tells them once more.
type Book map[string]int64

// ReadBook reads the annotation. One that cannot be read is empty.
func ReadBook(annotation string) Book {
	book := Book{}
	if json.Unmarshal([]byte(annotation), &book) != nil || book == nil {
		return Book{}
	}
	return book
}

// Has says whether a message was told. One without a key never is.
func (b Book) Has(key string) bool {
	_, told := b[key]
	return told && key != ""
}

// With is the book with one more message.
func (b Book) With(key string, now time.Time) Book {
	out := maps.Clone(b)
	if out == nil {
		out = Book{}
	}
	out[key] = now.Unix()
	if len(out) > maxBook {
		oldest := slices.SortedFunc(maps.Keys(out), func(x, y string) int {
			return cmp.Or(cmp.Compare(out[x], out[y]), cmp.Compare(x, y))
		})
		for _, k := range oldest[:len(out)-maxBook] {
			delete(out, k)
		}
	}
	return out
}

// String is the annotation; empty: there is none.
func (b Book) String() string {
	if len(b) == 0 {
		return ""
	}
	text, _ := json.Marshal(b) //nolint:errchkjson // numbers by texts can always be written
	return string(text)
}

// key names a message in the form in which annotations have it that others wrote.
func key(prefix, condition, once string, m Message) string {
	out := fmt.Sprintf("%s%s:%s:%s:%s", prefix, m.Trigger, condition, m.To.Service, m.To.Recipient)
	if once != "" {
		out = once + ":" + out
	}
	return out
}
