// Command extract writes the names in the sources of Flagger and Argo Rollouts, of which it gets the folders: fields, flags, metrics and
// event reasons. It is run once for a new version, at the root of the repository:
//
//	go mod download -json github.com/fluxcd/flagger@VERSION github.com/argoproj/argo-rollouts@VERSION   # in another module; prints folders
//	go run ./test/parity/extract -flagger FOLDER -argo FOLDER
//
// It replaces these groups in test/parity/facts, and retains the other groups, whose names are collected by reading. The version
// of the module is that of its folder.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/test/parity"
)

func main() {
	flagger := flag.String("flagger", "", "folder of the module github.com/fluxcd/flagger")
	argo := flag.String("argo", "", "folder of the module github.com/argoproj/argo-rollouts")
	flag.Parse()
	if err := run(*flagger, *argo); err != nil {
		fmt.Fprintln(os.Stderr, "extract:", err)
		os.Exit(1)
	}
}

func run(flagger, argo string) error {
	if flagger == "" || argo == "" {
		return fmt.Errorf("name the folders of both projects: -flagger FOLDER -argo FOLDER")
	}
	for _, project := range []struct {
		name, folder string
		extract      func(string) (map[parity.Key][]string, error)
	}{{"flagger", flagger, extractFlagger}, {"argo-rollouts", argo, extractArgo}} {
		found, err := project.extract(project.folder)
		if err != nil {
			return fmt.Errorf("%s: %w", project.name, err)
		}
		if err := parity.ReplaceFacts(".", project.name, versionOf(project.folder), found); err != nil {
			return fmt.Errorf("%s: %w", project.name, err)
		}
	}
	return nil
}

// versionOf returns the version in the folder of a module in the cache of Go: argo-rollouts@v1.10.2.
func versionOf(folder string) string {
	_, version, _ := strings.Cut(filepath.Base(filepath.Clean(folder)), "@")
	return version
}

var (
	flaggerFlag = regexp.MustCompile(`flag\.\w+\(&\w+, "([^"]+)"`)
	argoFlag    = regexp.MustCompile(`Flags\(\)\.\w+\(&\w+(?:\.\w+)?, "([^"]+)"`)
	metricName  = regexp.MustCompile(`(?:Name:\s+|NewDesc\(\s*)"([a-z0-9_]+)"`)
	eventReason = regexp.MustCompile(`EventReason: *(?:"([^"]+)"|conditions\.(\w+))[,}]`)
	reasonConst = regexp.MustCompile(`(\w+Reason)\s+= "(\w+)"`)
)

func extractFlagger(folder string) (map[parity.Key][]string, error) {
	found, err := fieldsIn(folder, "artifacts/flagger/crd.yaml")
	if err != nil {
		return nil, err
	}
	for of, file := range map[string]string{"controller": "cmd/flagger/main.go", "load tester": "cmd/loadtester/main.go"} {
		if found[parity.Key{Type: "flag", Of: of}], err = matches(folder, flaggerFlag, file); err != nil {
			return nil, err
		}
	}
	metrics, err := matches(folder, metricName, "pkg/metrics/recorder.go")
	for i := range metrics {
		metrics[i] = "flagger_" + metrics[i]
	}
	found[parity.Key{Type: "metric", Of: "controller"}] = metrics
	return found, err
}

func extractArgo(folder string) (map[parity.Key][]string, error) {
	found, err := fieldsIn(folder, "manifests/crds/*-crd.yaml")
	if err != nil {
		return nil, err
	}
	flags, err := matches(folder, argoFlag, "cmd/rollouts-controller/main.go")
	if err != nil {
		return nil, err
	}
	found[parity.Key{Type: "flag", Of: "controller"}] = slices.Concat(flags, parity.ConnectionFlags())
	metrics, err := matches(folder, metricName, "controller/metrics/*metrics.go")
	if err != nil {
		return nil, err
	}
	for i, name := range metrics {
		if name == "k8s_request_total" { // with the namespace of its options
			metrics[i] = "controller_clientset_" + name
		}
	}
	found[parity.Key{Type: "metric", Of: "controller"}] = metrics
	found[parity.Key{Type: "event", Of: "controller"}], err = argoEvents(folder)
	return found, err
}

// argoEvents returns the reasons of events: those in calls, those of the routers, and those composed of a subject and a phase.
func argoEvents(folder string) ([]string, error) {
	constants := map[string]string{}
	conditions, err := sources(folder, "utils/conditions/*.go")
	if err != nil {
		return nil, err
	}
	for _, match := range reasonConst.FindAllStringSubmatch(conditions, -1) {
		constants[match[1]] = match[2]
	}
	var found []string
	for _, pattern := range []string{"rollout/*.go", "rollout/*/*.go", "rollout/*/*/*.go", "experiments/*.go", "analysis/*.go", "utils/*/*.go", "controller/*.go"} {
		text, err := sources(folder, pattern)
		if err != nil {
			return nil, err
		}
		for _, match := range eventReason.FindAllStringSubmatch(text, -1) {
			if name := match[1] + constants[match[2]]; name != "" {
				found = append(found, name)
			}
		}
	}
	routers, err := matches(folder, regexp.MustCompile(`(?m)^(?:const )?\s*\w+\s*= "((?:Ambassador|CanaryMapping|Traefik|Apisix)\w+(?:Error|NotFound))"`), "rollout/trafficrouting/*/*.go")
	for _, phase := range []string{"Pending", "Running", "Successful", "Failed", "Error", "Inconclusive"} {
		found = append(found, "AnalysisRun"+phase)
		if phase != "Pending" {
			found = append(found, "Experiment"+phase)
		}
		if phase != "Pending" && phase != "Running" {
			found = append(found, "Metric"+phase)
		}
	}
	for _, status := range []string{"Progressing", "Running", "Successful", "Failed", "Error"} {
		found = append(found, "Template"+status)
	}
	return append(found, slices.Concat(routers, []string{"RolloutAddedToInformer"})...), err
}

// matches returns the first group of each match in files.
func matches(folder string, expression *regexp.Regexp, pattern string) ([]string, error) {
	text, err := sources(folder, pattern)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, match := range expression.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no match of %s: the sources have changed, so adapt the expression", pattern, expression)
	}
	return found, nil
}

// sources returns the text of files, without tests.
func sources(folder, pattern string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, filepath.FromSlash(pattern)))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("%s does not exist", pattern)
	}
	return b.String(), nil
}

// fieldsIn returns the fields of the stored versions in definitions.
func fieldsIn(folder, pattern string) (map[parity.Key][]string, error) {
	text, err := sources(folder, pattern)
	if err != nil {
		return nil, err
	}
	found := map[parity.Key][]string{}
	for document := range strings.SplitSeq("\n"+text, "\napiVersion: ") {
		var definition parity.Definition
		if err := yaml.Unmarshal([]byte("apiVersion: "+document), &definition); err != nil {
			return nil, err
		}
		if schema := definition.StoredSchema(); schema != nil {
			found[parity.Key{Type: "field", Of: definition.Spec.Names.Kind}] = parity.FieldPaths(schema)
		}
	}
	return found, nil
}
