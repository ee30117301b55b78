package dispatch

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
)

// parsedConfig is the last parsed configuration of one namespace.
type parsedConfig struct {
	*notification.Config
	// namespace contains the configuration. version identifies the ConfigMap and Secret that were parsed.
	namespace, version string

	mu      sync.Mutex
	senders map[string]service.Sender
}

// sender returns the sender of a service. It is created for the first message, and reused until the configuration changes.
func (c *parsedConfig) sender(dispatcher *Dispatcher, name string) (service.Sender, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sender, ok := c.senders[name]; ok {
		return sender, nil
	}
	options, err := c.Service(name)
	if err != nil {
		return nil, err
	}
	sender, err := service.New(dispatcher.Services, dispatcher.Policy, options)
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", name, err)
	}
	c.senders[name] = sender
	return sender, nil
}

// source is the unparsed configuration of a namespace.
type source struct {
	namespace, version string
	texts              map[string]string
	secret             map[string][]byte
	// known is the parsed configuration of this version; nil if it is not parsed yet.
	known *parsedConfig
}

// readSource returns the configuration of a namespace; nil if it has none. It is parsed later by parseSource, because
// that may be slow.
func (d *Dispatcher) readSource(ctx context.Context, namespace string) (*source, error) {
	var texts corev1.ConfigMap
	var secret corev1.Secret
	switch err := d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: notification.ConfigMapName}, &texts, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		d.dropConfig(namespace)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s in %s: %w", notification.ConfigMapName, namespace, err)
	}
	err := d.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: notification.SecretName}, &secret, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get Secret %s in %s: %w", notification.SecretName, namespace, err)
	}
	from := &source{
		namespace: namespace, texts: texts.Data, secret: secret.Data,
		version: string(texts.UID) + "/" + texts.ResourceVersion + "/" + string(secret.UID) + "/" + secret.ResourceVersion,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.configs[namespace]; known != nil && known.version == from.version {
		from.known = known
	}
	return from, nil
}

// parseSource parses a configuration, unless that version is parsed already.
func (d *Dispatcher) parseSource(from source) *parsedConfig {
	d.mu.Lock()
	known := d.configs[from.namespace]
	d.mu.Unlock()
	if known != nil && known.version == from.version {
		return known
	}
	if from.known != nil {
		return from.known
	}
	config := notification.NewConfig(from.texts, from.secret)
	if from.namespace == d.Namespace {
		d.reportHealth(config.Problems())
	} else {
		config = config.ForNamespace(from.namespace)
	}
	read := &parsedConfig{Config: config, namespace: from.namespace, version: from.version, senders: map[string]service.Sender{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.configs[from.namespace] = read
	return read
}

// dropConfig removes a configuration that was deleted.
func (d *Dispatcher) dropConfig(namespace string) {
	d.mu.Lock()
	known := d.configs[namespace]
	delete(d.configs, namespace)
	d.mu.Unlock()
	if known != nil && namespace == d.Namespace {
		d.reportHealth(nil)
	}
}
