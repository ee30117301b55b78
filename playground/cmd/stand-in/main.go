// Command stand-in replaces the programs in the images of test suites that were not written for the playground. Without a
// command, it serves HTTP. The only commands are sleep, echo and exit, and sh with a script of these.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// notFound is the exit code of a shell when a command does not exist.
const notFound = 127

func run(ctx context.Context, words []string) int {
	if len(words) == 0 {
		return serveHTTP(ctx)
	}
	switch name, args := words[0], words[1:]; name {
	case "sleep":
		return sleep(ctx, args)
	case "echo":
		fmt.Println(strings.Join(args, " "))
		return 0
	case "exit":
		code := 0
		if len(args) > 0 {
			code, _ = strconv.Atoi(args[0])
		}
		return code
	case "sh", "/bin/sh":
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			args = args[1:]
		}
		return runScript(ctx, strings.Join(args, " "))
	default:
		fmt.Fprintf(os.Stderr, "%s: not found\n", name)
		return notFound
	}
}

// runScript runs commands that are separated by line breaks, && or ;.
func runScript(ctx context.Context, text string) int {
	for command := range strings.SplitSeq(strings.NewReplacer(";", "&&", "\n", "&&").Replace(text), "&&") {
		words := strings.Fields(command)
		if len(words) == 0 {
			continue
		}
		if code := run(ctx, words); code != 0 || words[0] == "exit" {
			return code
		}
	}
	return 0
}

func sleep(ctx context.Context, args []string) int {
	if len(args) != 1 {
		return 1
	}
	forever := args[0] == "infinity"
	duration, err := time.ParseDuration(args[0])
	if err != nil {
		duration, err = time.ParseDuration(args[0] + "s")
	}
	if err != nil && !forever {
		return 1
	}
	var elapsed <-chan time.Time
	if !forever {
		elapsed = clock.RealClock{}.After(duration)
	}
	select {
	case <-ctx.Done():
		return 128 + int(syscall.SIGTERM)
	case <-elapsed:
		return 0
	}
}

// serveHTTP answers requests on the ports on which the replaced programs listen.
func serveHTTP(ctx context.Context) int {
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})}
	failed := make(chan error, 2)
	for _, port := range []string{":80", ":8080"} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", port)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case <-ctx.Done():
		return 0
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			return 0
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
}
