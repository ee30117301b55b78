package notification

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// maxSentLog bounds the messages in the annotation; the oldest are dropped first.
const maxSentLog = 100

// SentLog are the messages that were sent, with the time in seconds since 1970. It is stored in an annotation of the Rollout, so
// that no other process sends them again.
type SentLog map[string]int64

// ParseSentLog reads the annotation. One that cannot be read is empty.
func ParseSentLog(annotation string) SentLog {
	log := SentLog{}
	if json.Unmarshal([]byte(annotation), &log) != nil || log == nil {
		return SentLog{}
	}
	return log
}

// Has reports whether a message was sent. One without a key is sent each time.
func (l SentLog) Has(key string) bool {
	_, sent := l[key]
	return sent && key != ""
}

// With returns the log with one more message.
func (l SentLog) With(key string, now time.Time) SentLog {
	out := maps.Clone(l)
	if out == nil {
		out = SentLog{}
	}
	out[key] = now.Unix()
	if len(out) > maxSentLog {
		oldest := slices.SortedFunc(maps.Keys(out), func(x, y string) int {
			return cmp.Or(cmp.Compare(out[x], out[y]), cmp.Compare(x, y))
		})
		for _, k := range oldest[:len(out)-maxSentLog] {
			delete(out, k)
		}
	}
	return out
}

// String is the annotation; empty: there is none.
func (l SentLog) String() string {
	if len(l) == 0 {
		return ""
	}
	text, _ := json.Marshal(l) //nolint:errchkjson // numbers by texts can always be written
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
