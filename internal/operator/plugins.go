package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/plugin"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/traffic"
)

// pluginHealth is the name of the part whose health contains the errors in the configuration of plugins.
const pluginHealth = "plugins"

// newPluginHost returns the host of plugins with the configuration in the ConfigMap, which is watched; nil: plugins are off. A standby
// starts no plugin, because it calls none.
func (p process) newPluginHost(ctx context.Context) (*plugin.Host, error) {
	f := p.flags
	if !f.AllowPlugins {
		return nil, nil
	}
	namespace, reader := f.Argo.OwnNamespace, p.mgr.GetAPIReader()
	selector := selectName(plugin.ConfigMapName)
	err := reader.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selector}, client.Limit(1))
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("-allow-plugins requires the permissions get, list and watch for the ConfigMap %s in %s: grant them, or omit the flag", plugin.ConfigMapName, namespace)
	case err != nil:
		return nil, fmt.Errorf("read the configuration of plugins: %w", err)
	}
	launcher, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program of Serin: %w", err)
	}
	host := plugin.NewHost(ctx, plugin.Options{
		Dir: filepath.Join(f.PluginDir, "files"), SocketDir: f.PluginDir, Launcher: launcher, CallTimeout: f.PluginTimeout, StartTimeout: pluginStartTimeout,
		MemoryLimit: uint64(f.PluginMemory.Value()), UID: f.PluginUID, Clock: clock.RealClock{}, Logger: p.logger.WithName(pluginHealth), Metrics: p.metrics, //nolint:gosec // validated
		Client: outbound.New(trustedAddressPolicy()),
		ReadSecret: func(ctx context.Context, name string) (map[string][]byte, error) {
			secret := &corev1.Secret{}
			err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
			return secret.Data, err
		},
	})
	watched, err := cache.New(p.mgr.GetConfig(), cache.Options{
		HTTPClient: p.mgr.GetHTTPClient(), Scheme: p.mgr.GetScheme(), Mapper: p.mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Field: selector, Namespaces: map[string]cache.Config{namespace: {}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("watch the configuration of plugins: %w", err)
	}
	informer, err := watched.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch the configuration of plugins: %w", err)
	}
	configure := func(object any) { p.configurePlugins(host, object) }
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: configure, UpdateFunc: func(_, object any) { configure(object) }, DeleteFunc: func(any) { configure(&corev1.ConfigMap{}) },
	}); err != nil {
		return nil, fmt.Errorf("watch the configuration of plugins: %w", err)
	}
	if err := p.mgr.Add(replicaRunnable{watched.Start}); err != nil {
		return nil, fmt.Errorf("watch the configuration of plugins: %w", err)
	}
	return host, p.mgr.Add(replicaRunnable{func(ctx context.Context) error { // ends the processes before Serin ends
		<-ctx.Done()
		host.Close()
		return nil
	}})
}

// configurePlugins passes the configuration to the host, and reports its errors.
func (p process) configurePlugins(host *plugin.Host, object any) {
	source, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	config := plugin.ParseConfig(source.Data)
	host.Configure(config)
	message := ""
	for _, problem := range config.Problems() {
		p.logger.Info("Invalid configuration of plugins", "problem", problem)
		if message == "" {
			message = problem
		}
	}
	p.reportHealth(pluginHealth, message)
}

// newStepPlugins returns the step plugins of Rollouts; nil: plugins are off.
func (p process) newStepPlugins(host *plugin.Host, queue *reconciler.Queue) (*controller.StepPlugins, error) {
	if host == nil {
		return nil, nil
	}
	plugins := controller.NewStepPlugins(host, clock.RealClock{}, queue.AddAnswered)
	plugins.Calls.RequirePermission(p.mayQuery)
	if err := p.mgr.Add(replicaRunnable{plugins.Calls.Run}); err != nil {
		return nil, fmt.Errorf("add the query runner of step plugins: %w", err)
	}
	return plugins, nil
}

// newRouterPlugins returns the router plugins of Rollouts; nil: plugins are off.
func (p process) newRouterPlugins(host *plugin.Host, routers traffic.Registry, queue *reconciler.Queue) (*controller.RouterPlugins, error) {
	if host == nil {
		return nil, nil
	}
	plugins := controller.NewRouterPlugins(host, routers.BuiltInPlugins(), clock.RealClock{}, queue.AddAnswered)
	plugins.Calls.RequirePermission(p.mayQuery)
	if err := p.mgr.Add(replicaRunnable{plugins.Calls.Run}); err != nil {
		return nil, fmt.Errorf("add the query runner of router plugins: %w", err)
	}
	return plugins, nil
}
