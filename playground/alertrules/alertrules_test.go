//go:build linux

package alertrules

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/serin-dev/serin/playground/build"
)

func TestPromtoolAcceptsTheRulesAndTheirUnitTests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // promtool may have to be built
	defer cancel()
	builder, err := build.New(func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	promtool, err := builder.Promtool(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"},
		{"test", "rules", "--diff", "rules_test.yaml"},
	} {
		command := exec.CommandContext(ctx, promtool, arguments...)
		command.Dir = filepath.Join(builder.Repository(), "config", "prometheus")
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", arguments, err, output)
		}
	}
}
