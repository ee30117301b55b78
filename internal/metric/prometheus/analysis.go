package prometheus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

const (
	analysisTimeout = 30 * time.Second
	// addressVariable names the default server of AnalysisTemplates.
	addressVariable = "ARGO_ROLLOUTS_PROMETHEUS_ADDRESS"
)

func newMeasurement(ctx context.Context, r metric.AnalysisRequest, newSign NewSign) (metric.Measurement, error) {
	p := *r.Metric.Provider.Prometheus
	client := r.Restricted
	if p.Address == "" {
		p.Address, client = r.Environment(addressVariable), r.Unrestricted
	}
	timeout := analysisTimeout
	if p.Timeout != nil {
		timeout = metric.TimeoutOf(*p.Timeout)
	}
	switch _, err := outbound.ParseURL(p.Address); {
	case timeout < 0:
		return metric.Measurement{}, errors.New("prometheus timeout should not be negative")
	case p.Address == "":
		return metric.Measurement{}, errors.New("prometheus address is not configured")
	case err != nil:
		return metric.Measurement{}, errors.New("prometheus address is not is url format")
	}
	config := metric.Config{Address: p.Address, Header: metric.HeaderOf(p.Headers), SkipVerify: p.Insecure, Timeout: timeout}
	var err error
	if config.Credentials, err = analysisCredentials(p.Authentication); err != nil {
		return metric.Measurement{}, err
	}
	r.Hide(config.Credentials["password"], config.Credentials[metric.KeyClientSecret])
	query := metric.Query{Text: p.Query, Now: r.Now}
	if p.RangeQuery != nil {
		if query.Range, err = evaluateRange(ctx, r, *p.RangeQuery); err != nil {
			return metric.Measurement{}, err
		}
	}
	querier, err := newPrometheus(client, config)
	if err != nil {
		return metric.Measurement{}, err
	}
	// Argo Rollouts signs for any address that contains this text. Serin's signer refuses addresses that are not Amazon's.
	if auth := p.Authentication.Sigv4; strings.Contains(p.Address, "aps-workspaces") {
		querier.sign = newSign(auth.Region, auth.Profile, auth.RoleARN)
	}
	return metric.Measurement{Provider: querier, Query: query, NoData: []float64{}}, nil
}

func analysisCredentials(a argov1.Authentication) (map[string]outbound.Secret, error) {
	switch {
	case a.OAuth2.TokenURL != "":
		if a.OAuth2.ClientID == "" || a.OAuth2.ClientSecret == "" {
			return nil, errors.New("missing mandatory parameter in metric for OAuth2 setup")
		}
		return map[string]outbound.Secret{
			metric.KeyTokenURL: outbound.Secret(a.OAuth2.TokenURL), metric.KeyClientID: outbound.Secret(a.OAuth2.ClientID),
			metric.KeyClientSecret: outbound.Secret(a.OAuth2.ClientSecret), metric.KeyScopes: outbound.Secret(strings.Join(a.OAuth2.Scopes, " ")),
		}, nil
	case a.BasicAuth.Username != "" && a.BasicAuth.Password == "":
		return nil, errors.New("missing mandatory parameter in metric for basic auth setup: password")
	case a.BasicAuth.Username == "" && a.BasicAuth.Password != "":
		return nil, errors.New("missing mandatory parameter in metric for basic auth setup: username")
	case a.BasicAuth.Username != "":
		return map[string]outbound.Secret{"username": outbound.Secret(a.BasicAuth.Username), "password": outbound.Secret(a.BasicAuth.Password)}, nil
	default:
		return nil, nil
	}
}

// evaluateRange evaluates a range, whose ends are expressions such as now() - duration("1h").
func evaluateRange(ctx context.Context, r metric.AnalysisRequest, args argov1.PrometheusRangeQueryArgs) (*metric.Range, error) {
	start, err := r.EvaluateTime(ctx, args.Start)
	if err != nil {
		return nil, fmt.Errorf("rangeQuery.start: %w", err)
	}
	end, err := r.EvaluateTime(ctx, args.End)
	if err != nil {
		return nil, fmt.Errorf("rangeQuery.end: %w", err)
	}
	step, err := metric.DurationOr(args.Step, time.Minute)
	if err != nil {
		return nil, fmt.Errorf("rangeQuery.step: %w", err)
	}
	return &metric.Range{Start: start, End: end, Step: step}, nil
}
