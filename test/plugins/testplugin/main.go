// Command testplugin is a plugin of each kind for tests, built with the published interfaces of Argo Rollouts. The first argument
// is its kind; the configuration of a step, a metric or a router contains its behavior.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/argoproj/argo-rollouts/utils/plugin/types"
	goplugin "github.com/hashicorp/go-plugin"
)

// behavior is what a call does.
type behavior struct {
	// Behavior is empty or one of hang, freeze, crash, print, allocate, huge, nonsense, error, environment, user, read, stall. A router that
	// stalls does what the call requires, and never returns the result.
	Behavior string `json:"behavior"`
	// Phase, Message, Requeue and Value of the result.
	Phase   string `json:"phase"`
	Message string `json:"message"`
	Requeue string `json:"requeue"`
	Value   string `json:"value"`
	// Echo returns the received object.
	Echo bool `json:"echo"`
	// Call limits the behavior to calls whose text begins with it. Once is a file that limits it to one call: it is created then, and
	// contains the ID of the process.
	Call string `json:"call"`
	Once string `json:"once"`
	// Journal is a file to which each call is appended.
	Journal string `json:"journal"`
	// State is a file with the route of a router, Route an HTTPRoute that it writes.
	State string    `json:"state"`
	Route httpRoute `json:"route"`
	// Read are files whose readability the behavior read returns. $PPID is the ID of the controller's process.
	Read []string `json:"read"`
}

// allocated is the memory of the behavior allocate.
var allocated [][]byte

// parse returns the behavior in a configuration.
func parse(config json.RawMessage) behavior {
	var b behavior
	if len(config) > 0 {
		if err := json.Unmarshal(config, &b); err != nil {
			panic(err)
		}
	}
	return b
}

// applies reports whether the behavior applies to a call.
func (b behavior) applies(operation string) bool {
	if !strings.HasPrefix(operation, b.Call) {
		return false
	}
	if b.Once == "" {
		return true
	}
	file, err := os.OpenFile(b.Once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return false
	}
	_, _ = fmt.Fprintln(file, os.Getpid())
	_ = file.Close()
	return true
}

// act does what a call does before it returns. It returns the error of the call.
func (b behavior) act(operation string) types.RpcError {
	if b.Journal != "" {
		file, err := os.OpenFile(b.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return types.RpcError{ErrorString: err.Error()}
		}
		_, _ = fmt.Fprintln(file, operation)
		_ = file.Close()
	}
	if b.Behavior == "stall" || !b.applies(operation) {
		return types.RpcError{}
	}
	switch b.Behavior {
	case "hang":
		select {}
	case "freeze":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {} // the signal may arrive later
	case "crash":
		os.Exit(7)
	case "print":
		for {
			_, _ = os.Stderr.WriteString(strings.Repeat("x", 1<<16) + "\n")
		}
	case "allocate":
		for {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = 1
			}
			allocated = append(allocated, block)
		}
	case "error":
		return types.RpcError{ErrorString: "the test requires an error"}
	}
	return types.RpcError{}
}

// stall never returns if the behavior is stall and applies to a call.
func (b behavior) stall(operation string) {
	if b.Behavior == "stall" && b.applies(operation) {
		select {}
	}
}

// readability returns a line for each file of Read: whether this process can read it.
func (b behavior) readability() string {
	var lines []string
	for _, file := range b.Read {
		_, err := os.ReadFile(strings.ReplaceAll(file, "$PPID", strconv.Itoa(os.Getppid())))
		result := "readable"
		if errors.Is(err, fs.ErrPermission) {
			result = "denied"
		} else if err != nil {
			result = err.Error()
		}
		lines = append(lines, filepath.Base(file)+": "+result)
	}
	return strings.Join(lines, "\n")
}

// message returns the message of a result.
func (b behavior) message() string {
	if b.Behavior == "huge" {
		return strings.Repeat("x", 1<<30)
	}
	if b.Behavior == "environment" {
		return strings.Join(os.Environ(), "\n")
	}
	if b.Behavior == "read" {
		return b.readability()
	}
	if b.Behavior == "user" {
		return fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	}
	return b.Message
}

func (b behavior) requeue() time.Duration {
	d, _ := time.ParseDuration(b.Requeue)
	return d
}

func main() {
	kind := "step"
	if len(os.Args) > 1 {
		kind = os.Args[1]
	}
	if len(os.Args) > 2 && os.Args[2] == "mute" {
		time.Sleep(time.Hour)
	}
	if len(os.Args) > 2 && os.Args[2] == "babble" {
		fmt.Println("hello, I am not a plugin")
		return
	}
	if len(os.Args) > 3 && os.Args[2] == "wait" { // until a writer of this named pipe closes it
		_, _ = os.ReadFile(os.Args[3])
	}
	served := map[string]struct {
		name   string
		plugin goplugin.Plugin
	}{
		"step":           {"RpcStepPlugin", newStepPlugin()},
		"metricprovider": {"RpcMetricProviderPlugin", newMetricPlugin()},
		"trafficrouter":  {"RpcTrafficRouterPlugin", newRouterPlugin()},
	}[kind]
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "ARGO_ROLLOUTS_RPC_PLUGIN", MagicCookieValue: kind},
		Plugins:         map[string]goplugin.Plugin{served.name: served.plugin},
	})
}
