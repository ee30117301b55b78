// Package alertrules tests the alert rules in config/prometheus with promtool,
// the tool of Prometheus that evaluates rules.
//
// It consists of tests. It must not know the code of Serin: test/borders
// compares the rules with the metrics and the documentation.
package alertrules
