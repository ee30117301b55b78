package loadtester

import (
	"fmt"
	"strings"
	"sync"
)

// The sizes of the retained parts of an output in bytes: its beginning shows what the command does, its end why it failed.
const (
	headLimit = 16 << 10
	tailLimit = 48 << 10
)

// output retains the beginning and the end of the data written to it. Its zero value is ready to use.
type output struct {
	mu   sync.Mutex
	head []byte
	tail []byte
	// discarded is the number of discarded bytes between head and tail.
	discarded int
}

// Write never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written := len(p)
	room := min(headLimit-len(o.head), len(p))
	o.head = append(o.head, p[:room]...)
	if p = p[room:]; len(p) > tailLimit {
		o.discarded += len(p) - tailLimit
		p = p[len(p)-tailLimit:]
	}
	if excess := len(o.tail) + len(p) - tailLimit; excess > 0 {
		o.discarded += excess
		o.tail = append(o.tail[:0], o.tail[excess:]...)
	}
	o.tail = append(o.tail, p...)
	return written, nil
}

// String returns the retained output, without white space around it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := string(o.head)
	if o.discarded > 0 {
		text += fmt.Sprintf("\n... %d bytes omitted ...\n", o.discarded)
	}
	return strings.TrimSpace(strings.ToValidUTF8(text+string(o.tail), ""))
}
