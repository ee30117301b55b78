//go:build linux

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// queryPrometheus returns the first value of an instant query.
func queryPrometheus(ctx context.Context, text string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, shared.PrometheusURL+"/api/v1/query?query="+url.QueryEscape(text), nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if len(answer.Data.Result) == 0 {
		return 0, fmt.Errorf("no data for %s", text)
	}
	return strconv.ParseFloat(answer.Data.Result[0].Value[1].(string), 64)
}
