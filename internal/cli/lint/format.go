package lint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/serin-dev/serin/internal/cli/view"
)

// formats are the functions that format findings, by the value of --output.
var formats = map[string]func([]Finding) (string, error){"text": formatText, "json": formatJSON, "sarif": formatSARIF, "github": formatGitHub}

// Formats returns the formats of findings.
func Formats() []string { return []string{"text", "json", "sarif", "github"} }

// Format returns findings in one of the formats.
func Format(format string, findings []Finding) (string, error) { return formats[format](findings) }

// Summary counts findings.
func Summary(findings []Finding) (errors, warnings int) {
	for _, f := range findings {
		if f.Severity == Error {
			errors++
		}
	}
	return errors, len(findings) - errors
}

// subject returns kind, namespace and name of the object of a finding, such as Canary shop/cart.
func (f Finding) subject() string {
	switch {
	case f.Name == "":
		return f.Kind
	case f.Namespace == "":
		return f.Kind + " " + f.Name
	default:
		return f.Kind + " " + f.Namespace + "/" + f.Name
	}
}

// text returns the message with its fix.
func (f Finding) text() string {
	message := f.Message
	if f.Fix != "" {
		message += "; " + f.Fix
	}
	if subject := f.subject(); subject != "" {
		message = subject + ": " + message
	}
	return message
}

// formatText returns one line for each finding. Names and fields of manifests are unknown texts, and must neither begin another line,
// which a CI system may take for a command, nor control the terminal.
func formatText(findings []Finding) (string, error) {
	var out strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&out, "%s:%d:%d: %s: %s (%s)\n", view.SingleLine(f.File), f.Line, f.Column, f.Severity, view.SingleLine(f.text()), f.Rule)
	}
	return out.String(), nil
}

func formatJSON(findings []Finding) (string, error) {
	errors, warnings := Summary(findings)
	return encode(struct {
		Findings []Finding `json:"findings"`
		Errors   int       `json:"errors"`
		Warnings int       `json:"warnings"`
	}{append([]Finding{}, findings...), errors, warnings})
}

func encode(document any) (string, error) {
	text, err := json.MarshalIndent(document, "", "  ")
	return string(text) + "\n", err
}

// formatGitHub returns workflow commands, which GitHub shows as annotations of a pull request.
func formatGitHub(findings []Finding) (string, error) {
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	var out strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&out, "::%s file=%s,line=%d,col=%d,title=%s::%s\n", f.Severity, property.Replace(view.PlainText(f.File)), f.Line, f.Column, property.Replace(f.Rule), message.Replace(view.SingleLine(f.text())))
	}
	return out.String(), nil
}

// formatSARIF returns a log of SARIF 2.1.0 with all rules.
func formatSARIF(findings []Finding) (string, error) {
	type object = map[string]any
	rules, results := []object{}, []object{}
	var names []string
	for _, rule := range Rules() {
		names = append(names, rule.Name)
		rules = append(rules, object{
			"id": rule.Name, "shortDescription": object{"text": rule.Summary}, "help": object{"text": rule.Fix},
			"defaultConfiguration": object{"level": rule.Severity},
		})
	}
	for _, f := range findings {
		results = append(results, object{
			"ruleId": f.Rule, "ruleIndex": slices.Index(names, f.Rule), "level": f.Severity, "message": object{"text": f.text()},
			"locations": []object{{"physicalLocation": object{
				"artifactLocation": object{"uri": f.File}, "region": object{"startLine": f.Line, "startColumn": f.Column},
			}}},
		})
	}
	return encode(object{
		"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"runs": []object{{"tool": object{"driver": object{"name": "serin lint", "rules": rules}}, "results": results}},
	})
}
