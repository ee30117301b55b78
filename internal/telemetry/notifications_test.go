package telemetry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/telemetry"
)

func notify(m *telemetry.Metrics, name string) types.NamespacedName {
	key := types.NamespacedName{Namespace: "shop", Name: name}
	m.RecordNotification(key, "Normal", "RolloutCompleted", nil)
	m.RecordNotification(key, "Warning", "RolloutAborted", errors.New("no answer"))
	m.RecordNotificationAttempt(key, time.Second)
	return key
}

func TestSeriesOfNotificationsEndWithTheirRollout(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := telemetry.New(registry)
	series := func() (n int) {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if strings.HasPrefix(family.GetName(), "notification_send") {
				n += len(family.GetMetric())
			}
		}
		return n
	}
	notify(m, "cart")
	ofOther := series()
	m.ForgetNotifications(notify(m, "pay"))
	if got := series(); got != ofOther || ofOther != 3 {
		t.Errorf("%d series, want the %d of the other Rollout", got, ofOther)
	}
}

// TestForgettingOneRolloutDoesNotDependOnHowManyThereAre: a scan of all series takes a thousand times as long among a hundred
// thousand as among a hundred. The shortest of several attempts does not depend on other load of the machine.
func TestForgettingOneRolloutDoesNotDependOnHowManyThereAre(t *testing.T) {
	shortest := func(others int) time.Duration {
		m := telemetry.New(prometheus.NewRegistry())
		for i := range others {
			notify(m, fmt.Sprint("other-", i))
		}
		least := time.Hour
		for range 20 {
			key := notify(m, "cart")
			began := time.Now()
			m.ForgetNotifications(key)
			least = min(least, time.Since(began))
		}
		return least
	}
	if few, many := shortest(10), shortest(20_000); many > 100*few {
		t.Errorf("%s among 20000 Rollouts, %s among 10", many, few)
	}
}
