package newrelic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

const analysisTimeout = 5 * time.Second

// nerdGraphs are the addresses of NerdGraph by region.
var nerdGraphs = map[string]string{
	"us": "https://api.newrelic.com/graphql", "eu": "https://api.eu.newrelic.com/graphql", "staging": "https://staging-api.newrelic.com/graphql",
}

// options are the settings of a query of an analysis.
type options struct {
	// Key is a personal API key, Account a number.
	Key     outbound.Secret
	Account string
	// Region is us, eu or staging; the default is us.
	Region string
	// Address is the URL of NerdGraph; empty: that of the region.
	Address string
	// Timeout bounds a request.
	Timeout time.Duration
}

// nerdGraph queries NerdGraph.
type nerdGraph struct {
	client   *outbound.Client
	endpoint *url.URL
	options  options
	account  int
}

func newMeasurement(ctx context.Context, r metric.AnalysisRequest) (metric.Measurement, error) {
	p := r.Metric.Provider.NewRelic
	credentials, err := r.Credentials(ctx, r.ControllerNamespace, cmp.Or(p.Profile, "newrelic"))
	if err != nil {
		return metric.Measurement{}, err
	}
	r.Hide(credentials["personal-api-key"])
	timeout := analysisTimeout
	if p.Timeout != nil {
		timeout = metric.TimeoutOf(*p.Timeout)
	}
	querier, err := newNerdGraph(r.Restricted, options{
		Key: credentials["personal-api-key"], Account: credentials["account-id"].Reveal(), Region: credentials["region"].Reveal(),
		Address: credentials["base-url-nerdgraph"].Reveal(), Timeout: timeout,
	})
	return metric.Measurement{
		Provider: querier, Query: metric.Query{Text: p.Query}, NoDataError: errors.New("no results returned from NRQL query"),
	}, err
}

// newNerdGraph checks the options; it sends no request.
func newNerdGraph(client *outbound.Client, o options) (*nerdGraph, error) {
	if o.Key == "" || o.Account == "" {
		return nil, errors.New("account ID or personal API key not found") // promised by the API of analyses
	}
	account, err := strconv.Atoi(o.Account)
	if err != nil {
		return nil, errors.New("could not parse account ID: it is not a number") // the API of analyses promises the first part
	}
	if o.Region == "" {
		o.Region = "us"
	}
	address := o.Address
	if address == "" {
		address = nerdGraphs[strings.ToLower(o.Region)]
	}
	if address == "" {
		return nil, errors.New("the region of New Relic is not us, eu or staging: correct it")
	}
	endpoint, err := outbound.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return &nerdGraph{client: client, endpoint: endpoint, options: o, account: account}, nil
}

// QueryRaw returns the only row of the response, or the list of all rows.
func (g *nerdGraph) QueryRaw(ctx context.Context, q metric.Query) (metric.Result, error) {
	const question = `query($account: Int!, $nrql: Nrql!) { actor { account(id: $account) { nrql(query: $nrql) { results } } } }`
	body, err := json.Marshal(map[string]any{
		"query": question, "variables": map[string]any{"account": g.account, "nrql": strings.TrimSpace(q.Text)},
	})
	if err != nil {
		return metric.Result{}, err
	}
	answer, err := metric.Fetch(ctx, g.client, outbound.Request{
		Method: http.MethodPost, URL: g.endpoint.String(), Body: body, Timeout: g.options.Timeout,
		Header: http.Header{"Api-Key": {g.options.Key.Reveal()}, "Content-Type": {"application/json"}, "Accept": {"application/json"}},
	}, nil)
	if err != nil {
		return metric.Result{}, err
	}
	return parseRows(answer)
}

func parseRows(body []byte) (metric.Result, error) {
	var answer struct {
		Data struct {
			Actor struct {
				Account struct {
					NRQL *struct {
						Results []map[string]any `json:"results"`
					} `json:"nrql"`
				} `json:"account"`
			} `json:"actor"`
		} `json:"data"`
		Errors []json.RawMessage `json:"errors"`
	}
	switch nrql := &answer.Data.Actor.Account.NRQL; {
	case json.Unmarshal(body, &answer) != nil:
		return metric.Result{}, metric.Unexpected("New Relic")
	case len(answer.Errors) > 0:
		return metric.Result{}, errors.New("the query could not be run: correct it")
	case *nrql == nil:
		return metric.Result{}, metric.Unexpected("New Relic")
	case len((*nrql).Results) == 0:
		return metric.Result{}, metric.ErrNoData
	case len((*nrql).Results) == 1:
		return metric.Result{Value: (*nrql).Results[0]}, nil
	default:
		rows := make([]any, len((*nrql).Results))
		for i, row := range (*nrql).Results {
			rows[i] = row
		}
		return metric.Result{Value: rows}, nil
	}
}
