package notification

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// SentLog contains the messages that were sent, with the time in seconds since 1970. It is stored in an annotation of the
// Rollout, so that no other process sends them again.
type SentLog map[string]int64

// ParseSentLog decodes the annotation. It returns an empty log if that fails.
func ParseSentLog(annotation string) SentLog {
	log := SentLog{}
	if json.Unmarshal([]byte(annotation), &log) != nil || log == nil {
		return SentLog{}
	}
	return log
}

// Has reports whether a message was sent. It is false for an empty key, because such messages are always sent.
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
	return out
}

// Newest returns at most a number of messages, which occupy at most a number of bytes in the annotation; the oldest are omitted
// first.
func (l SentLog) Newest(messages, bytes int) SentLog {
	newest := slices.SortedFunc(maps.Keys(l), func(x, y string) int {
		return cmp.Or(cmp.Compare(l[y], l[x]), cmp.Compare(y, x))
	})
	out := SentLog{}
	for _, key := range newest {
		// A single long message does not displace all others. Its braces are counted in place of a comma.
		size := len(SentLog{key: l[key]}.String())
		if len(out) == messages || size > bytes {
			continue
		}
		out[key] = l[key]
		bytes -= size
	}
	return out
}

// String returns the value of the annotation; empty if there is to be none.
func (l SentLog) String() string {
	if len(l) == 0 {
		return ""
	}
	text, _ := json.Marshal(l) //nolint:errchkjson // a map of numbers can always be encoded
	return string(text)
}

// key returns the key of a message in the format of Argo Rollouts, so that annotations that it wrote are understood.
func key(prefix, condition, once string, m Message) string {
	out := fmt.Sprintf("%s%s:%s:%s:%s", prefix, m.Trigger, condition, m.To.Service, m.To.Recipient)
	if once != "" {
		out = once + ":" + out
	}
	return out
}
