package influxdb_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/influxdb"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

func table(kind, value string) string {
	return "#datatype,string,long," + kind + "\r\n,result,table,_value\r\n,_result,0," + value + "\r\n,_result,0,7\r\n\r\n"
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service:     influxdb.Service(),
		Credentials: map[string][]byte{"token": []byte("tok3n-value"), "org": []byte("0rg-value")},
		NoEndMarker: true,
		Query:       `from(bucket: "errors") |> range(start: -1m)`,
		Value:       table("double", "1.5"),
		NoData:      []string{"", "\r\n", "#datatype,string,long,double\r\n,result,table,_value\r\n", table("double", ""), table("double", "NaN")},
		Invalid: []string{
			table("string", "1.5"), table("double", "one"), "_value\n1.5\n",
			"#datatype,string,long,double\n,result,table,count\n,_result,0,1.5\n",
			"#datatype,string\n,result,table,_value\n,_result,0,1.5\n",
			"#datatype,string,long,double\n,result,table,_value\n,_result\n",
			"#datatype,string,string\n,error,reference\n,failed,897\n",
			"#datatype,string,long,double\n", "#datatype,\"unclosed\n",
		},
		IsAuthorised: func(r *http.Request) bool {
			return r.Header.Get("Authorization") == "Token tok3n-value" && r.URL.Query().Get("org") == "0rg-value"
		},
	})
}

func TestRequestMatchesTheAPI(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.Path+" "+string(body))
		_, _ = w.Write([]byte(table("long", "3")))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	provider, err := metric.NewRegistry(influxdb.Service()).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{Type: "influxdb", Address: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	value, err := provider.Measure(t.Context(), metric.Query{Text: `from(bucket: "a")`})
	if err != nil || value != 3 {
		t.Errorf("integer: got %v, %v", value, err)
	}
	if err := provider.Online(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{
		`POST /api/v2/query {"query":"from(bucket: \"a\")","type":"flux","dialect":{"annotations":["datatype"],"header":true}}`,
		`POST /api/v2/query {"query":"buckets() |\u003e limit(n: 1)","type":"flux","dialect":{"annotations":["datatype"],"header":true}}`,
	}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Error(diff)
	}
}
