package newrelic

import (
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

// nerdGraphs are the addresses of NerdGraph by region.
var nerdGraphs = map[string]string{
	"us": "https://api.newrelic.com/graphql", "eu": "https://api.eu.newrelic.com/graphql", "staging": "https://staging-api.newrelic.com/graphql",
}

// Options are what an analysis says about an account.
type Options struct {
	// Key is a personal one, Account a number.
	Key     outbound.Secret
	Account string
	// Region is us, eu or staging; us without it.
	Region string
	// Address of NerdGraph; empty: that of the region.
	Address string
	// Timeout of a query.
	Timeout time.Duration
}

// Graph asks NerdGraph.
type Graph struct {
	client   *outbound.Client
	endpoint *url.URL
	options  Options
	account  int
}

// New checks the options; it calls nobody.
func New(client *outbound.Client, o Options) (*Graph, error) {
	if o.Key == "" || o.Account == "" {
		return nil, errors.New("account ID or personal API key not found") // promised by the API of analyses
	}
	account, err := strconv.Atoi(o.Account)
	if err != nil {
		return nil, errors.New("could not parse account ID: it is no number") // so begins the text of the API of analyses
	}
	if o.Region == "" {
		o.Region = "us"
	}
	address := o.Address
	if address == "" {
		address = nerdGraphs[strings.ToLower(o.Region)]
	}
	if address == "" {
		return nil, errors.New("the region of New Relic is none of us, eu and staging: correct it")
	}
	endpoint, err := outbound.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return &Graph{client: client, endpoint: endpoint, options: o, account: account}, nil
}

// Measure is the only number of the only row.
func (g *Graph) Measure(ctx context.Context, q metric.Query) (float64, error) {
	found, err := g.Find(ctx, q)
	if err != nil {
		return 0, err
	}
	row, ok := found.Value.(map[string]any)
	if !ok || len(row) != 1 {
		return 0, errors.New("query returned multiple values: ask for one")
	}
	for _, value := range row {
		return metric.Single(metric.Result{Value: value})
	}
	return 0, metric.ErrNoData
}

// Find is the only row of the answer, or the list of all rows.
func (g *Graph) Find(ctx context.Context, q metric.Query) (metric.Result, error) {
	body, err := g.ask(ctx, strings.TrimSpace(q.Text))
	if err != nil {
		return metric.Result{}, err
	}
	return parseRows(body)
}

// Online asks for a constant.
func (g *Graph) Online(ctx context.Context) error {
	_, err := g.ask(ctx, "SELECT 1 FROM Metric LIMIT 1")
	return err
}

func (g *Graph) ask(ctx context.Context, query string) ([]byte, error) {
	const question = `query($account: Int!, $nrql: Nrql!) { actor { account(id: $account) { nrql(query: $nrql) { results } } } }`
	body, err := json.Marshal(map[string]any{"query": question, "variables": map[string]any{"account": g.account, "nrql": query}})
	if err != nil {
		return nil, err
	}
	return metric.Fetch(ctx, g.client, outbound.Request{
		Method: http.MethodPost, URL: g.endpoint.String(), Body: body, Timeout: g.options.Timeout,
		Header: http.Header{"Api-Key": {g.options.Key.Reveal()}, "Content-Type": {"application/json"}, "Accept": {"application/json"}},
	}, nil)
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
