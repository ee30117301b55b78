package workload

import (
	"context"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// podless provides the methods that do nothing for targets without pods that Serin scales.
type podless struct{}

// UpFromZero does nothing.
func (podless) UpFromZero(context.Context, *flaggerv1.Canary) error { return nil }

// UpToPrimary does nothing.
func (podless) UpToPrimary(context.Context, *flaggerv1.Canary) error { return nil }

// PrimaryUpFromZero does nothing.
func (podless) PrimaryUpFromZero(context.Context, *flaggerv1.Canary) error { return nil }

// DownToZero does nothing.
func (podless) DownToZero(context.Context, *flaggerv1.Canary) error { return nil }

// EnsureScaler does nothing.
func (podless) EnsureScaler(context.Context, *flaggerv1.Canary, bool) error { return nil }

// PauseScaler does nothing.
func (podless) PauseScaler(context.Context, *flaggerv1.Canary) error { return nil }

// ResumeScaler does nothing.
func (podless) ResumeScaler(context.Context, *flaggerv1.Canary) error { return nil }

// RestoreConfigs does nothing: no configuration was copied.
func (podless) RestoreConfigs(context.Context, *flaggerv1.Canary, string) error { return nil }

// CollectConfigs does nothing: no configuration was copied.
func (podless) CollectConfigs(context.Context, *flaggerv1.Canary) error { return nil }

// PodProblem returns an empty text.
func (podless) PodProblem(context.Context, *flaggerv1.Canary, bool) (string, error) { return "", nil }
