// Package metric is the contract of metrics services, their registry, and the text of queries.
//
// It knows queries, services, and how a response is read. It must not know releases, gates or conditions, or any client of
// the Kubernetes API: credentials come in as bytes.
//
// A new metrics service needs:
//
//   - a package below internal/metric with the function Service, its contract test (metrictest) and a fuzz test of the
//     parser of its responses (TestMetricsServicesAreTested in test/borders);
//   - an entry in operator.MetricsServices.
//
// For MetricTemplates, also:
//
//   - its type in the enum of MetricTemplateProvider.Type (api/flagger/v1beta1), then make generate;
//   - a row of the table in docs/metrictemplate.md, and an example in docs/examples/metrictemplates.yaml, and the
//     sentences there about the types that Flagger does not have, and about timeouts if its timeout is not five seconds;
//   - the golden file of the enum, internal/cli/lint/testdata/rules, with -rewrite;
//   - if it reads the API server, its permissions in hack/packaging and docs/install.md.
//
// For AnalysisTemplates, also:
//
//   - a field of argov1.MetricProvider and its row in providerTypes (api/argoproj/v1alpha1), then make generate; validation
//     and the series of analyses read that table;
//   - a row in both tables of docs/metrics.md (the second is checked), the sentence below it about services that Argo Rollouts
//     does not have, an example in docs/examples/analysistemplate-services.yaml, a manifest in
//     api/argoproj/v1alpha1/testdata/analysis.yaml, and a case in the tests of internal/analysis/measure, whose registry is a list
//     of its own;
//   - a case in describeProvider (internal/cli/plan), so that serin plan shows the query
//     (TestPlansShowTheQueryOfEveryService);
//   - if Argo Rollouts records the resolved query in the metadata of a run, metricMetadata and ResolvedQuery in
//     internal/analysis.
//
// A service with credentials in a Secret of its own form has a row in docs/security.md, and each has an entry in CHANGELOG.md.
//
// A service that Flagger or Argo Rollouts does not have is a deliberate difference: docs/differences-from-flagger.md or
// docs/differences-from-argo-rollouts.md.
//
// TestMetricsServicesAreDocumented (test/borders) compares the registry with the tables and the examples of MetricTemplates, and
// TestEveryProviderTypeOfTheCRDIsServed and TestEveryProviderOfAnalysesIsServed (internal/operator) compare it with the APIs.
package metric
