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

// Secrets is the class of releases whose measurements send a secret to a service, which may return it.
const Secrets sim.FaultClass = "secret"

// The service that requires a secret, and the location of the secret.
const (
	secretService = "http://metrics.example"
	secretName    = "metrics"
	secretKey     = "token"
)

// addSecret makes all measurements of a release query a service that requires a secret, in a header and in its address.
func (r *Release) addSecret() {
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
		ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: secretName}, Data: map[string][]byte{secretKey: []byte(actors.PlantedSecret)},
	}))
}

// newSecretClient returns the client for services that users name. Its requests end at the actors of the world; everything else
// runs as in production.
func (e *externalServices) newSecretClient() *outbound.Client {
	named, err := outbound.NewForServer(secretService, secretTransport{e})
	if err != nil {
		panic(err) // a programming error
	}
	return named
}

// secretTransport is the connection of a process to the service.
type secretTransport struct{ *externalServices }

// measurementCall is a measurement that is sent by this transport.
type measurementCall struct {
	query     queryrunner.RunningQuery
	scheduled func(sim.Failure) bool
}

type measurementCallKey struct{}

// withCall returns a context with the measurement.
func withCall(ctx context.Context, c measurementCall) context.Context {
	return context.WithValue(ctx, measurementCallKey{}, c)
}

// RoundTrip implements http.RoundTripper. A failing service returns whatever it received.
func (l secretTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c, ok := r.Context().Value(measurementCallKey{}).(measurementCall)
	if !ok {
		return nil, http.ErrNotSupported
	}
	read := l.drawReading(c.query)
	l.World.Sleep(read.after)
	sent := r.Header.Get("Authorization") + " at " + r.URL.String()
	switch {
	case c.scheduled(sim.LoseAnswer):
		return nil, fmt.Errorf("read the response to %s: connection reset by peer", sent)
	case read.failure != "":
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

// withLogger returns a context with a logger that publishes its lines to the world, if a release has a secret.
func (k *Rollouts) withLogger(ctx context.Context) context.Context {
	for _, r := range k.Releases {
		if r.secret {
			return log.IntoContext(ctx, logr.New(worldLogSink{k.World, nil}))
		}
	}
	return ctx
}

// worldLogSink is a log sink that publishes its lines.
type worldLogSink struct {
	world *sim.World
	with  []any
}

func (worldLogSink) Init(logr.RuntimeInfo)          {}
func (worldLogSink) Enabled(int) bool               { return true }
func (s worldLogSink) WithName(string) logr.LogSink { return s }

func (s worldLogSink) WithValues(more ...any) logr.LogSink {
	return worldLogSink{s.world, append(slices.Clip(s.with), more...)}
}

func (s worldLogSink) Info(_ int, message string, more ...any) {
	s.world.Publish(actors.LogLine{Text: fmt.Sprint(message, s.with, more)})
}

func (s worldLogSink) Error(err error, message string, more ...any) {
	s.world.Publish(actors.LogLine{Text: fmt.Sprint(err, message, s.with, more)})
}
