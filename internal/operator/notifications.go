package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/rollout/controller"
	"github.com/serin-dev/serin/internal/telemetry"
)

// newNotifications returns the dispatcher of notifications about Rollouts, AnalysisRuns and Experiments, or nil if their configuration may not be read. The
// permissions of earlier versions did not include it, and a forbidden watch would be retried indefinitely.
func (p process) newNotifications(ctx context.Context, own cluster.Cluster, writes client.Client, recorder *telemetry.Recorder) (*dispatch.Dispatcher, error) {
	f := p.flags
	switch unread, err := f.notificationsUnreadable(ctx, own.GetAPIReader()); {
	case err != nil:
		return nil, err
	case unread != "":
		p.logger.Info("Sends no notifications about Rollouts: " + unread)
		return nil, nil
	}
	policy := f.userAddressPolicy()
	return dispatch.New(dispatch.Parts{
		Client: p.shards.client(writes), Clock: clock.RealClock{}, Outbox: p.notificationOutbox, Metrics: p.metrics, Services: outbound.New(policy), Policy: policy,
		Namespace: f.Argo.OwnNamespace, SelfService: f.Argo.SelfServiceNotification,
		RecordEvent: controller.LateEventRecorder(recorder, p.metrics), ReportHealth: p.reportHealth,
	}), nil
}

// notificationsUnreadable returns the reason why the configuration of notifications cannot be read; empty means that it can.
func (f *Flags) notificationsUnreadable(ctx context.Context, reader client.Reader) (string, error) {
	for name, list := range map[string]client.ObjectList{notification.ConfigMapName: &corev1.ConfigMapList{}, notification.SecretName: &corev1.SecretList{}} {
		err := reader.List(ctx, list, client.InNamespace(f.notificationNamespace()), client.MatchingFieldsSelector{Selector: selectName(name)}, client.Limit(1))
		switch {
		case apierrors.IsForbidden(err):
			return fmt.Sprintf("ConfigMap %s and Secret %s in %s may not be read. Allow get, list and watch on them, and restart",
				notification.ConfigMapName, notification.SecretName, f.Argo.OwnNamespace), nil
		case err != nil:
			return "", fmt.Errorf("list the configuration of notifications: %w", err)
		}
	}
	return "", nil
}

// notificationNamespace returns the namespace whose configuration is watched; empty means all.
func (f *Flags) notificationNamespace() string {
	if f.Argo.SelfServiceNotification && f.Namespace == "" {
		return ""
	}
	return f.Argo.OwnNamespace
}

// notificationCache limits the cache of ConfigMaps and Secrets to the configuration of notifications.
func (f *Flags) notificationCache(all map[client.Object]cache.ByObject) {
	for name, kind := range map[string]client.Object{notification.ConfigMapName: &corev1.ConfigMap{}, notification.SecretName: &corev1.Secret{}} {
		watched := cache.ByObject{Field: selectName(name)}
		if namespace := f.notificationNamespace(); namespace != "" {
			watched.Namespaces = map[string]cache.Config{namespace: {}}
			if f.Argo.SelfServiceNotification {
				watched.Namespaces[f.Namespace] = cache.Config{}
			}
		}
		all[kind] = watched
	}
}

func selectName(name string) fields.Selector {
	return fields.OneTermEqualSelector("metadata.name", name)
}
