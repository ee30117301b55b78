// Package alertrules tests the alert rules in config/prometheus, and the
// queries of the boards in config/grafana, with promtool, the tool of
// Prometheus that evaluates rules.
//
// It consists of tests. It must not know the code of Serin: test/borders
// compares the rules and the boards with the metrics and the documentation.
package alertrules
