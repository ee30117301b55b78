package lint

// Severity of a finding.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Rule is a kind of finding. Names never change.
type Rule struct {
	Name     string   `json:"name"`
	Severity Severity `json:"severity"`
	Summary  string   `json:"summary"`
	// Fix is how to fix most findings of the rule.
	Fix string `json:"fix"`
}

// Finding is a violation of a rule. Fields are added to it, never renamed or removed.
type Finding struct {
	Rule      string   `json:"rule"`
	Severity  Severity `json:"severity"`
	File      string   `json:"file"`
	Line      int      `json:"line"`
	Column    int      `json:"column"`
	Kind      string   `json:"kind,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"`
	Field     string   `json:"field,omitempty"`
	Message   string   `json:"message"`
	Fix       string   `json:"fix,omitempty"`
}

// The rules. docs/lint.md describes each of them.
var (
	ruleSyntax            = &Rule{"syntax", Error, "The document is not YAML or JSON, or not a Kubernetes object.", "correct the document"}
	ruleDuplicateField    = &Rule{"duplicate-field", Error, "A field occurs twice in one mapping; only the last one counts.", "remove one of the two"}
	ruleUnknownKind       = &Rule{"unknown-kind", Error, "The API group has no such kind or version.", "correct apiVersion and kind"}
	ruleUnknownField      = &Rule{"unknown-field", Error, "The API has no such field; the API server drops it.", "remove it"}
	ruleRequiredField     = &Rule{"required-field", Error, "A required field is missing.", "add it"}
	ruleWrongType         = &Rule{"wrong-type", Error, "A value has the wrong type.", "write a value of that type"}
	ruleUnsupportedValue  = &Rule{"unsupported-value", Error, "A value is not one of the permitted values.", "use one of the permitted values"}
	ruleInvalidValue      = &Rule{"invalid-value", Error, "The schema does not permit the value.", "correct the value"}
	ruleInvalidDuration   = &Rule{"invalid-duration", Warning, "A text is not a duration, so a default is used.", "write a duration such as 30s, 5m or 1h30m"}
	ruleInvalidCanary     = &Rule{"invalid-canary", Error, "A Canary has settings with which no release can be promoted.", "correct the setting"}
	ruleAdjustedSetting   = &Rule{"adjusted-setting", Warning, "A setting is ignored, or another value is used.", "correct or remove the setting"}
	ruleNoAnalysis        = &Rule{"no-analysis", Warning, "A Canary has no analysis.", "add spec.analysis"}
	ruleSharedTarget      = &Rule{"shared-target", Error, "Two Canaries have the same target.", "delete one of the two, or correct spec.targetRef"}
	ruleInvalidQuery      = &Rule{"invalid-query", Error, "The template of a query cannot be rendered.", "correct the template"}
	ruleMissingVariable   = &Rule{"missing-variable", Error, "A Canary passes no value for a variable of a metric template.", "add it to templateVariables"}
	ruleUnsupportedMetric = &Rule{"unsupported-provider", Error, "This version has no metrics provider of that type.", "use a supported provider"}
	ruleIncompleteAlerts  = &Rule{"incomplete-alert-provider", Error, "An AlertProvider has neither an address nor the options of its service, so that it sends no alerts.", "add a secretRef"}
	ruleInvalidRollout    = &Rule{"invalid-rollout", Error, "The controller rejects the spec of a Rollout.", "correct the field"}
	ruleServiceMismatch   = &Rule{"service-mismatch", Error, "A Service does not select the pods of a Rollout.", "correct the selector of the Service, or the labels of the template"}
	ruleUnsupportedRouter = &Rule{"unsupported-router", Error, "No router supports the traffic routing of a Rollout.", "use a supported router"}
	ruleUnusablePlugin    = &Rule{"unusable-plugin", Warning, "The controller cannot call a plugin with the ConfigMap of plugins that the input contains.", "correct the name, or the ConfigMap"}
	ruleInvalidAnalysis   = &Rule{"invalid-analysis", Error, "A template or a run of an analysis is invalid, or cannot be used by a Rollout.", "correct the field"}
	ruleInvalidCondition  = &Rule{"invalid-condition", Error, "The condition of a metric is not a valid expression.", "correct the expression; the value is named result"}
	ruleInvalidExperiment = &Rule{"invalid-experiment", Error, "The controller rejects the spec of an Experiment.", "correct the field"}
	ruleMissingReference  = &Rule{"missing-reference", Warning, "A reference names an object that the input does not contain, although it contains others of that kind.", "correct the name, or add the object"}
)

// Rules returns all rules, in the order of the documentation.
func Rules() []Rule {
	all := []*Rule{
		ruleSyntax, ruleDuplicateField, ruleUnknownKind, ruleUnknownField, ruleRequiredField, ruleWrongType, ruleUnsupportedValue, ruleInvalidValue,
		ruleInvalidDuration, ruleInvalidCanary, ruleAdjustedSetting, ruleNoAnalysis, ruleSharedTarget, ruleInvalidQuery, ruleMissingVariable, ruleUnsupportedMetric,
		ruleIncompleteAlerts, ruleInvalidRollout, ruleServiceMismatch, ruleUnsupportedRouter, ruleUnusablePlugin, ruleInvalidAnalysis, ruleInvalidCondition, ruleInvalidExperiment, ruleMissingReference,
	}
	out := make([]Rule, len(all))
	for i, rule := range all {
		out[i] = *rule
	}
	return out
}
