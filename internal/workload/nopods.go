package workload

import (
	"context"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// noPods implements the methods that do nothing for targets whose pods Serin does not scale.
type noPods struct{}

// UpFromZero does nothing.
func (noPods) UpFromZero(context.Context, *flaggerv1.Canary) error { return nil }

// UpToPrimary does nothing.
func (noPods) UpToPrimary(context.Context, *flaggerv1.Canary) error { return nil }

// PrimaryUpFromZero does nothing.
func (noPods) PrimaryUpFromZero(context.Context, *flaggerv1.Canary) error { return nil }

// DownToZero does nothing.
func (noPods) DownToZero(context.Context, *flaggerv1.Canary) error { return nil }

// EnsureScaler does nothing.
func (noPods) EnsureScaler(context.Context, *flaggerv1.Canary, bool) error { return nil }

// PauseScaler does nothing.
func (noPods) PauseScaler(context.Context, *flaggerv1.Canary) error { return nil }

// ResumeScaler does nothing.
func (noPods) ResumeScaler(context.Context, *flaggerv1.Canary) error { return nil }

// RestoreConfigs does nothing: no configuration was copied.
func (noPods) RestoreConfigs(context.Context, *flaggerv1.Canary, string) error { return nil }

// CollectConfigs does nothing: no configuration was copied.
func (noPods) CollectConfigs(context.Context, *flaggerv1.Canary) error { return nil }

// Pods returns no pods.
func (noPods) Pods(context.Context, *flaggerv1.Canary, bool) (Pods, error) { return Pods{}, nil }
