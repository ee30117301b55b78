package operator

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
)

func TestTheLocalMetricsServiceHasAClientWithAndWithoutCredentials(t *testing.T) {
	var seen string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = r.URL.Path + " " + r.Header.Get("Authorization")
	}))
	t.Cleanup(server.Close)
	own, err := localMetricsService(&rest.Config{Host: server.URL + "/clusters/a", BearerToken: "of-the-controller"}, true)
	if err != nil {
		t.Fatal(err)
	}
	if !own.OneNamespace {
		t.Error("queries about other namespaces are permitted")
	}
	for client, want := range map[*outbound.Client]string{own.Own: "/clusters/a Bearer of-the-controller", own.Anonymous: "/clusters/a "} {
		if _, err := client.Do(t.Context(), outbound.Request{URL: own.Address, Limit: 1, Timeout: time.Minute}); err != nil || seen != want {
			t.Errorf("%v; seen %q, want %q", err, seen, want)
		}
	}
}

func TestEveryProviderTypeOfTheCRDIsServed(t *testing.T) {
	files, err := crd.Files(flaggerv1.GroupName)
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(files["flagger.app_metrictemplates.yaml"], &definition); err != nil {
		t.Fatal(err)
	}
	var want []string
	properties := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
	for _, value := range properties["spec"].Properties["provider"].Properties["type"].Enum {
		want = append(want, strings.Trim(string(value.Raw), `"`))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, MetricsServices(metric.Cluster{}, clock.RealClock{}).TemplateTypes()); diff != "" || len(want) == 0 {
		t.Errorf("types (-definition +served):\n%s", diff)
	}
}

// TestEveryProviderOfAnalysesIsServed: each field of the API is a service of the registry, except for Jobs and plugins.
func TestEveryProviderOfAnalysesIsServed(t *testing.T) {
	var p argov1.MetricProvider
	for _, field := range reflect.VisibleFields(reflect.TypeOf(p)) {
		if field.Name != "Job" && field.Name != "Plugin" {
			reflect.ValueOf(&p).Elem().FieldByIndex(field.Index).Set(reflect.New(field.Type.Elem()))
		}
	}
	want := slices.Sorted(slices.Values(p.Types()))
	if diff := cmp.Diff(want, MetricsServices(metric.Cluster{}, clock.RealClock{}).AnalysisTypes()); diff != "" {
		t.Errorf("types (-API +served):\n%s", diff)
	}
}
