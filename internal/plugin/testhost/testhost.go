// Package testhost runs the test plugins of package plugintest in a Host, for tests of the callers of plugins.
//
// It must not know what the plugins are used for.
package testhost

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/plugin/plugintest"
)

// Main is the body of a TestMain: the process of the tests becomes that of a plugin if a Host starts it as one.
func Main(m *testing.M) int {
	if len(os.Args) > 1 && os.Args[1] == plugin.LaunchArgument {
		fmt.Fprintln(os.Stderr, plugin.Launch(os.Args[2:]))
		return 1
	}
	return m.Run()
}

// New returns a Host with the test plugin as acme/test of each kind, for a package whose TestMain calls Main.
func New(t testing.TB, callTimeout time.Duration) *plugin.Host {
	t.Helper()
	h := plugin.NewHost(t.Context(), plugin.Options{
		Dir: t.TempDir(), Launcher: os.Args[0], CallTimeout: callTimeout, StartTimeout: time.Minute, MemoryLimit: 512 << 20, Clock: clock.RealClock{}, Logger: logr.Discard(),
	})
	t.Cleanup(h.Close)
	path := plugintest.Build(t)
	data := map[string]string{}
	for kind, argument := range map[plugin.Kind]string{plugin.Step: "step", plugin.Metric: "metricprovider", plugin.Router: "trafficrouter"} {
		data[string(kind)] = fmt.Sprintf("- {name: acme/test, location: 'file://%s', args: [%s]}\n- {name: acme/off, disabled: true}", path, argument)
	}
	h.Configure(plugin.ParseConfig(data))
	return h
}
