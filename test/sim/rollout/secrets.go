package rollout

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
)

// Secrets are in some releases: their measurements show a secret to a service, which may show it back.
const Secrets sim.FaultClass = "secret"

// planted is in every Secret. It must never be seen anywhere else.

// The service that wants a secret, and where that is.
const (
	secretService = "http://metrics.example"
	secretName    = "metrics"
	secretKey     = "token"
)

// withSecret lets all measurements of a release ask a service that wants a secret, in a header and in its address.
func (r *Release) withSecret() {
	for _, object := range r.objects {
		template, ok := object.(*argov1.AnalysisTemplate)
		if !ok {
			continue
		}
		template.Spec.Args = append(template.Spec.Args, argov1.Argument{
			Name: secretKey, ValueFrom: &argov1.ValueFrom{SecretKeyRef: &argov1.SecretKeyRef{Name: secretName, Key: secretKey}},
		})
		for i := range template.Spec.Metrics {
			template.Spec.Metrics[i].Provider = argov1.MetricProvider{Web: &argov1.WebMetric{
				URL: secretService + "/errors?hash={{args.hash}}&token={{args.token}}", JSONPath: "{$.data}",
				Headers: []argov1.WebMetricHeader{{Key: "Authorization", Value: "Bearer {{args.token}}"}},
			}}
		}
	}
	r.secret = true
	r.objects = append(r.objects, client.Object(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: secretName}, Data: map[string][]byte{secretKey: []byte(actors.Planted)},
	}))
}

// named is the client that asks services which users name. What goes out by it ends at the actors of the world; all before
// that runs as in production.
func (o *externalServices) named() *outbound.Client {
	named, err := outbound.NewForServer(secretService, line{o})
	if err != nil {
		panic(err) // a mistake in the program
	}
	return named
}

// line is the connection of a process to the service.
type line struct{ *externalServices }

// call is a measurement that goes out by a line.
type call struct {
	asked   queryrunner.RunningQuery
	strikes func(sim.Failure) bool
}

type callKey struct{}

// calling are the bounds of a measurement.
func calling(ctx context.Context, c call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// RoundTrip is http.RoundTripper. A service that is out of order shows whatever it was sent.
func (l line) RoundTrip(r *http.Request) (*http.Response, error) {
	c, ok := r.Context().Value(callKey{}).(call)
	if !ok {
		return nil, http.ErrNotSupported
	}
	read := l.read(c.asked)
	l.world.Sleep(read.after)
	sent := r.Header.Get("Authorization") + " at " + r.URL.String()
	switch {
	case c.strikes(sim.LoseAnswer):
		return nil, fmt.Errorf("read what was answered to %s: connection reset by peer", sent)
	case read.failed != "":
		return response(r, http.StatusServiceUnavailable, "overloaded: "+sent), nil
	case len(read.value) == 0:
		return response(r, http.StatusOK, "no data for "+sent), nil
	case read.value[0] != read.value[0]: // not a number
		return response(r, http.StatusOK, `{"data":["`+sent+`"]}`), nil
	default:
		return response(r, http.StatusOK, fmt.Sprintf(`{"data":[%g],"for":%q}`, read.value[0], sent)), nil
	}
}

func response(r *http.Request, code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{}, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}

// logging gives a reconciliation a logger that publishes its lines to the world, where they are checked.
func (k *Rollouts) logging(ctx context.Context) context.Context {
	for _, r := range k.releases {
		if r.secret {
			return log.IntoContext(ctx, logr.New(logged{k.world, nil}))
		}
	}
	return ctx
}

// logged is a log.
type logged struct {
	world *sim.World
	with  []any
}

func (logged) Init(logr.RuntimeInfo)          {}
func (logged) Enabled(int) bool               { return true }
func (s logged) WithName(string) logr.LogSink { return s }

func (s logged) WithValues(more ...any) logr.LogSink {
	return logged{s.world, append(slices.Clip(s.with), more...)}
}

func (s logged) Info(_ int, message string, more ...any) {
	s.world.Publish(actors.LogLine{Text: fmt.Sprint(message, s.with, more)})
}

func (s logged) Error(err error, message string, more ...any) {
	s.world.Publish(actors.LogLine{Text: fmt.Sprint(err, message, s.with, more)})
}
