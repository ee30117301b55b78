package controller

import (
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/experiment"
)

func TestServicesAreWatchedFromTheFirstTemplateWithOne(t *testing.T) {
	refused := errors.New("refused")
	asked := 0
	r := &Reconciler{Parts: Parts{Client: fake.NewClientBuilder().Build()}, watchServices: func() error {
		asked++
		return refused
	}}
	s := &observation{object: &argov1.Experiment{}}
	if err := r.observeService(t.Context(), s, &argov1.TemplateSpec{}, &experiment.TemplateState{}); err != nil || asked != 0 {
		t.Errorf("a template without a Service: %d watches, %v, want none", asked, err)
	}
	if err := r.observeService(t.Context(), s, &argov1.TemplateSpec{Service: &argov1.TemplateService{}}, &experiment.TemplateState{}); !errors.Is(err, refused) || asked != 1 {
		t.Errorf("a template with a Service: %d watches, %v, want one and its error", asked, err)
	}
}
