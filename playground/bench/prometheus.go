package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// goodValue is a value that both checks like: 100 % of requests succeeded, and took 100 ms.
const goodValue = "100"

// prometheusStub answers every query at once with one good value: what a server would have to reckon is no cost of a
// release.
func prometheusStub() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		value := goodValue
		if strings.HasPrefix(r.FormValue("query"), "vector(1)") {
			value = "1" // asked to see whether anybody is there
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[0,%q]}]}}`, value)
	})
	return &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
}
