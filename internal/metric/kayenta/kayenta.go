// Package kayenta has Kayenta judge a canary by a configuration that it keeps.
//
// It knows that API and nothing of what a score leads to, and no other provider.
package kayenta

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

// Looking a configuration up may take as long.
const timeout = 15 * time.Second

// Options are what an analysis says about the judgement.
type Options struct {
	Address     string
	Application string
	// ConfigName is that of the configuration to judge by.
	ConfigName string
	// The accounts in which Kayenta finds metrics, configurations and storage.
	MetricsAccount, ConfigurationAccount, StorageAccount string
	// Pass and Marginal are the scores from which on a canary is good, or may be.
	Pass, Marginal int
	// Scopes to compare, by name.
	Scopes map[string]Scopes
}

// Scopes are the two sides of a comparison.
type Scopes struct {
	Control    Scope `json:"controlScope"`
	Experiment Scope `json:"experimentScope"`
}

// Scope is one side: what is measured, and when. Without a begin it is one interval long, without an end it ends now.
type Scope struct {
	Scope  string    `json:"scope"`
	Region string    `json:"region"`
	Step   int       `json:"step"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
}

// during is the scope with the moments that are missing.
func (s Scope) during(q metric.Query) Scope {
	if s.Start.IsZero() {
		s.Start = q.Now.Add(-q.Interval)
	}
	if s.End.IsZero() {
		s.End = q.Now
	}
	s.Start, s.End = s.Start.UTC(), s.End.UTC()
	return s
}

// Provider asks one service about one comparison.
type Provider struct {
	client  *outbound.Client
	address *url.URL
	options Options
}

// New checks the options; it calls nobody.
func New(client *outbound.Client, o Options) (*Provider, error) {
	address, err := outbound.ParseURL(o.Address)
	if err != nil {
		return nil, err
	}
	return &Provider{client: client, address: address, options: o}, nil
}

// Begin has the judgement begun. The ticket is the name of its execution.
func (p *Provider) Begin(ctx context.Context, q metric.Query) (string, error) {
	id, err := p.configuration(ctx)
	if err != nil {
		return "", err
	}
	o := p.options
	scopes := make(map[string]Scopes, len(o.Scopes))
	for name, s := range o.Scopes {
		scopes[name] = Scopes{Control: s.Control.during(q), Experiment: s.Experiment.during(q)}
	}
	body, err := json.Marshal(map[string]any{"scopes": scopes, "thresholds": map[string]int{"pass": o.Pass, "marginal": o.Marginal}})
	if err != nil {
		return "", err
	}
	answer, err := p.call(ctx, http.MethodPost, []string{"canary", id}, url.Values{
		"application": {o.Application}, "metricsAccountName": {o.MetricsAccount},
		"configurationAccountName": {o.ConfigurationAccount}, "storageAccountName": {o.StorageAccount},
	}, body)
	if err != nil {
		return "", err
	}
	return parseExecution(answer)
}

// Resume is the score from 0 to 100, a whole number.
func (p *Provider) Resume(ctx context.Context, ticket string) (metric.Result, error) {
	if !names.MatchString(ticket) {
		return metric.Result{}, errors.New("the ticket is not that of an execution")
	}
	answer, err := p.call(ctx, http.MethodGet, []string{"canary", ticket}, nil, nil)
	if err != nil {
		return metric.Result{}, err
	}
	return parseScore(answer)
}

// Online asks for the configuration.
func (p *Provider) Online(ctx context.Context) error {
	_, err := p.configuration(ctx)
	return err
}

func (p *Provider) configuration(ctx context.Context) (string, error) {
	answer, err := p.call(ctx, http.MethodGet, []string{"canaryConfig"}, url.Values{
		"application": {p.options.Application}, "configurationAccountName": {p.options.ConfigurationAccount},
	}, nil)
	if err != nil {
		return "", err
	}
	return parseConfigurations(answer, p.options.ConfigName)
}

func (p *Provider) call(ctx context.Context, method string, path []string, parameters url.Values, body []byte) ([]byte, error) {
	address := p.address.JoinPath(path...)
	address.RawQuery = parameters.Encode()
	header := http.Header{"Accept": {"application/json"}}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	return metric.Fetch(ctx, p.client, outbound.Request{Method: method, URL: address.String(), Header: header, Body: body, Timeout: timeout}, nil)
}

// names are those of configurations and executions, which become parts of a path.
var names = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)

func parseConfigurations(body []byte, name string) (string, error) {
	var all []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if json.Unmarshal(body, &all) != nil {
		return "", metric.Unexpected("Kayenta")
	}
	for _, c := range all {
		if c.Name == name && names.MatchString(c.ID) {
			return c.ID, nil
		}
	}
	return "", errors.New("the application has no canary configuration of that name: correct canaryConfigName, or create it")
}

func parseExecution(body []byte) (string, error) {
	var answer struct {
		ID string `json:"canaryExecutionId"`
	}
	if json.Unmarshal(body, &answer) != nil || !names.MatchString(answer.ID) {
		return "", errors.New("Invalid canaryExecutionId") //nolint:staticcheck // promised by the API of analyses
	}
	return answer.ID, nil
}

func parseScore(body []byte) (metric.Result, error) {
	var answer struct {
		Complete *bool `json:"complete"`
		Result   struct {
			Judge struct {
				Score struct {
					Score *float64 `json:"score"`
				} `json:"score"`
			} `json:"judgeResult"`
		} `json:"result"`
	}
	switch {
	case json.Unmarshal(body, &answer) != nil:
		return metric.Result{}, metric.Unexpected("Kayenta")
	case answer.Complete == nil:
		return metric.Result{}, errors.New("Missing Complete Status") //nolint:staticcheck // promised by the API of analyses
	case !*answer.Complete:
		return metric.Result{}, metric.ErrUnfinished
	case answer.Result.Judge.Score.Score == nil:
		return metric.Result{}, errors.New("Missing Score") //nolint:staticcheck // promised by the API of analyses
	default:
		return metric.Result{Value: math.Trunc(*answer.Result.Judge.Score.Score)}, nil
	}
}
