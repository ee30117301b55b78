package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// The names of the APIs in the flag.
const (
	apiCanary  = "canary"
	apiRollout = "rollout"
)

// api is one of the APIs that the process serves.
type api struct {
	name string
	// missing returns the reason why the API cannot be served yet, or nil if it can.
	missing func(context.Context) error
	// serve starts to serve the API.
	serve func(context.Context) error
}

// installedPollInterval is the interval of checks for the CRDs of an API that is not installed. They are not watched: Serin has no
// permissions for CRDs.
const installedPollInterval = time.Minute

// serveAPIs serves each API once its CRDs are installed. It returns an error if none can be served, so that the process does not
// start.
func serveAPIs(ctx context.Context, mgr manager.Manager, clk clock.WithTicker, logger logr.Logger, apis []api) error {
	var later []api
	var missing []error
	for _, a := range apis {
		if err := a.missing(ctx); err != nil {
			later, missing = append(later, a), append(missing, err)
			continue
		}
		if err := a.serve(ctx); err != nil {
			return err
		}
		logger.Info("Serves an API", "api", a.name)
	}
	if len(later) == len(apis) {
		return missing[0]
	}
	for i, a := range later {
		logger.Info("Does not serve an API until it can be read", "api", a.name, "err", missing[i].Error())
		// Every replica serves it, so that a standby fills the caches of the API before it leads.
		if err := mgr.Add(replicaRunnable{func(ctx context.Context) error { return serveWhenInstalled(ctx, clk, logger, a) }}); err != nil {
			return fmt.Errorf("wait for the CRDs of %s: %w", a.name, err)
		}
	}
	return nil
}

func serveWhenInstalled(ctx context.Context, clk clock.WithTicker, logger logr.Logger, a api) error {
	ticker := clk.NewTicker(installedPollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if a.missing(ctx) != nil {
			continue
		}
		if err := a.serve(ctx); err != nil {
			return err
		}
		logger.Info("Serves an API", "api", a.name)
		return nil
	}
}

// checkInstalled checks whether kinds can be listed. command is the command that prints their CRDs.
func checkInstalled(ctx context.Context, reader client.Reader, namespace, command string, kinds []requiredKind) error {
	for _, kind := range kinds {
		var options []client.ListOption
		if !kind.isClusterScoped {
			options = append(options, client.InNamespace(namespace))
		}
		err := reader.List(ctx, kind.list, append(options, client.Limit(1))...)
		switch {
		case err == nil:
		case apierrors.IsForbidden(err):
			return fmt.Errorf("%s may not be read (%w): allow it as docs/install.md says", kind.name, err)
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			return fmt.Errorf("%s CRD is not registered (%w): install the definitions with: %s | kubectl apply --server-side -f -", kind.name, err, command)
		default:
			return fmt.Errorf("list %s: %w", kind.name, err)
		}
	}
	return nil
}

// requiredKind is a kind that an API requires.
type requiredKind struct {
	name            string
	list            client.ObjectList
	isClusterScoped bool
}
