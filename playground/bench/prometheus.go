package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// goodValue passes both checks: 100 % of requests succeeded, and took 100 ms.
const goodValue = "100"

// prometheusStub answers every query immediately with a good value: the computation of a real server is not a cost of a release.
func prometheusStub() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		value := goodValue
		if strings.HasPrefix(r.FormValue("query"), "vector(1)") {
			value = "1" // the query that checks whether the server is available
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,%q]}]}}`, value)
	})
	return &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
}
