package kubernetes_test

import (
	"testing"

	"github.com/serin-dev/serin/internal/traffic/kubernetes"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	traffictest.Run(t, kubernetes.New(), traffictest.Options{Provider: "kubernetes"})
}
