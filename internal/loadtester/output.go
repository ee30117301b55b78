package loadtester

import (
	"fmt"
	"strings"
	"sync"
)

// What is kept of the output of a command: its beginning, which says what it is, and its end, which says why it failed.
const (
	headLimit = 16 << 10
	tailLimit = 48 << 10
)

// output keeps the beginning and the end of what is written to it. Its zero value is ready.
type output struct {
	mu   sync.Mutex
	head []byte
	tail []byte
	// lost is the number of bytes between the two.
	lost int
}

// Write never fails, however much comes.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	written := len(p)
	room := min(headLimit-len(o.head), len(p))
	o.head = append(o.head, p[:room]...)
	if p = p[room:]; len(p) > tailLimit {
		o.lost += len(p) - tailLimit
		p = p[len(p)-tailLimit:]
	}
	if over := len(o.tail) + len(p) - tailLimit; over > 0 {
		o.lost += over
		o.tail = append(o.tail[:0], o.tail[over:]...)
	}
	o.tail = append(o.tail, p...)
	return written, nil
}

// String is what was kept, without white space around it.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := string(o.head)
	if o.lost > 0 {
		text += fmt.Sprintf("\n... %d bytes left out ...\n", o.lost)
	}
	return strings.TrimSpace(strings.ToValidUTF8(text+string(o.tail), ""))
}
