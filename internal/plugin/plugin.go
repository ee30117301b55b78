// Package plugin runs the plugins of Argo Rollouts: programs that serve one interface over hashicorp/go-plugin, with net/rpc
// and gob.
//
// A Host starts one process for each configured plugin when it is first called, limits what the process may do, and converts
// calls to the wire format of Argo Rollouts. The files, in this order:
//
//	config.go    the plugins that the administrator has configured, from the data of the ConfigMap
//	store.go     the file of a plugin: downloaded, verified, cached by its content
//	process.go   one process: its environment and its connection
//	runner.go    how a process starts and ends, and how fast its output is read
//	launch_*.go  the limits of a process
//	host.go      all processes: starts, backoff, calls
//	wire.go      the names and types of Argo Rollouts' interfaces
//	step.go, metric.go, router.go   the calls of each interface
//
// It must not know the consequence of an answer, when a plugin is called, or how a configuration is read. Its callers run outside
// the workers of reconciliations, because a call may take until its timeout.
package plugin

import (
	"errors"
	"fmt"
)

// ErrNotConfigured is the cause of a RefusedError for a plugin that the configuration does not contain.
var ErrNotConfigured = errors.New("not configured")

// RefusedError reports that a plugin was not called, because it is not configured, its file is not acceptable, or its process
// cannot be started. The text is shown to users.
type RefusedError struct {
	Name  string
	cause error
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: %v", e.Name, e.cause) }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.cause }

// CallError reports that a plugin was called and did not return a result. The text is shown to users.
type CallError struct {
	method string
	cause  error
}

func (e *CallError) Error() string { return fmt.Sprintf("%s rpc call error: %v", e.method, e.cause) }

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.cause }
