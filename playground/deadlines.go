//go:build linux

package playground

import "time"

// A deadline in the past ends an Accept under way; the zero time means none.
var (
	clockZero  = time.Unix(1, 0)
	noDeadline time.Time
)
