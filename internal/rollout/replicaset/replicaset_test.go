package replicaset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
)

func parseYAML[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

const cart = `
metadata: {name: cart, namespace: shop, uid: u1, annotations: {team: web, kubectl.kubernetes.io/last-applied-configuration: "{}", rollout.argoproj.io/revision: "3"}}
spec:
  replicas: 4
  minReadySeconds: 5
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers: [{name: cart, image: "cart:1", ports: [{containerPort: 8080}], readinessProbe: {httpGet: {port: 8080}}}]
      volumes: [{name: tmp}, {name: conf, configMap: {name: cart}}]
  strategy: {canary: {antiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}}
`

// storedTemplate returns the template of cart as an API server stores it.
const storedTemplate = `
metadata: {labels: {app: cart, rollouts-pod-template-hash: h}, creationTimestamp: null}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 30
  dnsPolicy: ClusterFirst
  securityContext: {}
  schedulerName: default-scheduler
  containers:
    - name: cart
      image: cart:1
      imagePullPolicy: IfNotPresent
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: File
      ports: [{containerPort: 8080, protocol: TCP}]
      readinessProbe: {httpGet: {port: 8080, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}
  volumes: [{name: tmp, emptyDir: {}}, {name: conf, configMap: {name: cart, defaultMode: 420}}]
`

func newSet(t *testing.T, hash string, change func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	t.Helper()
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "cart-" + hash, Labels: map[string]string{argov1.PodTemplateHashLabel: hash}, Annotations: map[string]string{}}}
	rs.Spec.Template = parseYAML[corev1.PodTemplateSpec](t, storedTemplate)
	if change != nil {
		change(rs)
	}
	return rs
}

func TestNewCopiesTheTemplateAndRecordsTheRevision(t *testing.T) {
	owner := parseYAML[argov1.Rollout](t, cart)
	rs := New(&owner, owner.Spec, rollout.ReplicaSetExists{
		Name: "cart-new", Hash: "new", Revision: 4, AvoidedHash: "old", Metadata: &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "canary"}},
	})
	text, err := yaml.Marshal(rs)
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: apps/v1
kind: ReplicaSet
metadata:
  annotations:
    rollout.argoproj.io/desired-replicas: "4"
    rollout.argoproj.io/ephemeral-metadata: '{"labels":{"role":"canary"}}'
    rollout.argoproj.io/revision: "4"
    team: web
  labels:
    app: cart
    rollouts-pod-template-hash: new
  name: cart-new
  namespace: shop
  ownerReferences:
  - apiVersion: argoproj.io/v1alpha1
    blockOwnerDeletion: true
    controller: true
    kind: Rollout
    name: cart
    uid: u1
spec:
  minReadySeconds: 5
  replicas: 0
  selector:
    matchLabels:
      app: cart
      rollouts-pod-template-hash: new
  template:
    metadata:
      labels:
        app: cart
        role: canary
        rollouts-pod-template-hash: new
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector:
              matchExpressions:
              - key: rollouts-pod-template-hash
                operator: In
                values:
                - old
            namespaces:
            - shop
            topologyKey: kubernetes.io/hostname
      containers:
      - image: cart:1
        name: cart
        ports:
        - containerPort: 8080
        readinessProbe:
          httpGet:
            port: 8080
        resources: {}
      volumes:
      - name: tmp
      - configMap:
          name: cart
        name: conf
status:
  replicas: 0
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(parseYAML[argov1.Rollout](t, cart), owner); diff != "" {
		t.Errorf("what was given was changed: %s", diff)
	}
}

func TestFindByTemplateAcceptsHashesOfOtherControllers(t *testing.T) {
	owner := parseYAML[argov1.Rollout](t, cart)
	hash, err := rollout.PodHash(owner.Spec.Template, nil)
	if err != nil {
		t.Fatal(err)
	}
	older, err := rollout.OlderPodHashes(owner.Spec.Template, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.Containers[0].Image = "cart:0" }
	sidecar := func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Spec.Containers = append(rs.Spec.Template.Spec.Containers, corev1.Container{Name: "proxy", Image: "proxy:1"})
	}
	for _, tt := range []struct {
		name    string
		sets    []*appsv1.ReplicaSet
		settled string
		want    string
	}{
		{"none", nil, "", ""},
		{"by its label", []*appsv1.ReplicaSet{newSet(t, "x", other), newSet(t, hash, other)}, "", hash},
		{"by the label of an earlier controller", []*appsv1.ReplicaSet{newSet(t, older[0], other)}, "", older[0]},
		{"by the label of the first controllers", []*appsv1.ReplicaSet{newSet(t, older[1], other)}, "", older[1]},
		{"by what its pods run", []*appsv1.ReplicaSet{newSet(t, "x", other), newSet(t, "y", nil)}, "", "y"},
		{"by what its pods run, the oldest", []*appsv1.ReplicaSet{newSet(t, "x", nil), newSet(t, "y", nil)}, "", "x"},
		{"as it was found before", []*appsv1.ReplicaSet{newSet(t, "x", func(rs *appsv1.ReplicaSet) { sidecar(rs); rs.Annotations[templateHashAnnotation] = hash })}, "", "x"},
		{"under the metadata of a role", []*appsv1.ReplicaSet{newSet(t, "x", func(rs *appsv1.ReplicaSet) {
			*rs = *SetEphemeralMetadata(rs, &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "canary"}, Annotations: map[string]string{"a": "b"}})
		})}, "", "x"},
		{"kept off the pods of another revision", []*appsv1.ReplicaSet{newSet(t, "x", func(rs *appsv1.ReplicaSet) {
			rs.Spec.Template.Spec.Affinity = addAntiAffinity(nil, "shop", "old", antiAffinity(owner.Spec))
		})}, "", "x"},
		{"under the other name of a service account", []*appsv1.ReplicaSet{newSet(t, "x", func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Spec.DeprecatedServiceAccount = "" })}, "", "x"},
		{"not one with a sidecar, which somebody may have taken away", []*appsv1.ReplicaSet{newSet(t, "x", sidecar)}, "", ""},
		{"one with a sidecar that a webhook added, while nothing has changed", []*appsv1.ReplicaSet{newSet(t, "x", sidecar)}, "x", "x"},
		{"not one with another image, whatever a status says", []*appsv1.ReplicaSet{newSet(t, "x", other)}, "x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, name, err := FindByTemplate(tt.sets, FindCriteria{Template: owner.Spec.Template, ObservedHash: tt.settled})
			if err != nil || name != hash {
				t.Fatalf("hash %s, %v; want %s", name, err, hash)
			}
			is := ""
			if got != nil {
				is = PodTemplateHash(got)
			}
			if is != tt.want {
				t.Errorf("found %q, want %q", is, tt.want)
			}
		})
	}
}

func TestOnlyTheStatusOfAnIdleRolloutIsTrusted(t *testing.T) {
	rest := argov1.RolloutStatus{
		ObservedGeneration: "3", CurrentPodHash: "x", StableRS: "x",
		Conditions: []argov1.RolloutCondition{{Type: argov1.RolloutProgressing, Reason: "NewReplicaSetAvailable"}},
	}
	for name, tt := range map[string]struct {
		change func(*argov1.RolloutStatus)
		want   string
	}{
		"at rest":                          {func(*argov1.RolloutStatus) {}, "x"},
		"of an earlier spec":               {func(s *argov1.RolloutStatus) { s.ObservedGeneration = "2" }, ""},
		"of another workload":              {func(s *argov1.RolloutStatus) { s.WorkloadObservedGeneration = "7" }, ""},
		"of a release under way":           {func(s *argov1.RolloutStatus) { s.StableRS = "w" }, ""},
		"written when one was just made":   {func(s *argov1.RolloutStatus) { s.Conditions[0].Reason = "NewReplicaSetCreated" }, ""},
		"written when the spec was broken": {func(s *argov1.RolloutStatus) { s.Conditions[0].Type = argov1.RolloutInvalidSpec }, ""},
	} {
		status := *rest.DeepCopy()
		tt.change(&status)
		if got := ObservedTemplateHash(status, 3, ""); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestMaintainCopiesTheAnnotationsOfTheRollout(t *testing.T) {
	owner := parseYAML[argov1.Rollout](t, cart)
	rs := newSet(t, "x", func(rs *appsv1.ReplicaSet) {
		rs.Annotations = map[string]string{argov1.RevisionAnnotation: "1", argov1.RevisionHistoryAnnotation: "0", "team": "old", "mine": "stays"}
		rs.Spec.Template.Spec.Affinity = addAntiAffinity(nil, "shop", "old", antiAffinity(owner.Spec))
	})
	got := Maintain(rs, &owner, owner.Spec, rollout.ReplicaSetMaintained{Revision: 3, AvoidedHash: "newer"}, "y")
	want := map[string]string{argov1.RevisionAnnotation: "3", argov1.RevisionHistoryAnnotation: "0,1", "team": "web", "mine": "stays", templateHashAnnotation: "y"}
	if diff := cmp.Diff(want, got.Annotations); diff != "" {
		t.Error(diff)
	}
	if got.Spec.MinReadySeconds != 5 || avoidedHash(got.Spec.Template.Spec.Affinity) != "newer" || avoidedHash(rs.Spec.Template.Spec.Affinity) != "old" {
		t.Errorf("got %+v", got.Spec)
	}
	again := Maintain(got, &owner, owner.Spec, rollout.ReplicaSetMaintained{Revision: 2}, "y")
	if !equality.Semantic.DeepEqual(got, again) {
		t.Errorf("a lower revision changed something: %s", cmp.Diff(got, again))
	}
}

func TestScaleAndScaleDownDeadline(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	rs := SetScaleDownDeadline(newSet(t, "x", nil), rollout.ScaleDownDeadlineSet{Until: at, Abandoned: true})
	if got := Observe(rs).ScaleDownDeadline; !got.Equal(at) || !Observe(rs).Abandoned || rs.Annotations[argov1.ScaleDownDeadlineAnnotation] != "2026-01-02T02:04:05Z" {
		t.Errorf("deadline %s, %v", got, rs.Annotations)
	}
	if v := Observe(Scale(rs, rollout.ReplicaSetScaled{Pods: 2, RolloutReplicas: 7})); v.SpecReplicas != 2 || *v.RolloutReplicas != 7 || !v.HasScaleDownDeadline() {
		t.Errorf("scaled to two: %+v", v)
	}
	if scaled := Scale(rs, rollout.ReplicaSetScaled{Pods: 0, RolloutReplicas: 7}); *scaled.Spec.Replicas != 0 || Observe(scaled).HasScaleDownDeadline() || scaled.Annotations[argov1.AbandonedAnnotation] != "" {
		t.Errorf("scaled to zero: %+v", scaled)
	}
	if v := Observe(Scale(rs, rollout.ReplicaSetScaled{Pods: 0, RolloutReplicas: 7, KeepDeadline: true})); !v.HasScaleDownDeadline() || !v.Abandoned {
		t.Errorf("scaled to zero in a delay: %+v", v)
	}
	if v := Observe(SetScaleDownDeadline(rs, rollout.ScaleDownDeadlineSet{Until: at})); v.Abandoned {
		t.Errorf("promoted again: %+v", v)
	}
	if none := SetScaleDownDeadline(rs, rollout.ScaleDownDeadlineSet{}); Observe(none).HasScaleDownDeadline() || none.Annotations[argov1.AbandonedAnnotation] != "" {
		t.Errorf("no delay: %v", none.Annotations)
	}
}

// drawMetadata draws ephemeral metadata with few keys and values, so that they coincide with those of the template.
func drawMetadata(t *rapid.T, name string) *argov1.PodTemplateMetadata {
	texts := rapid.MapOfN(rapid.SampledFrom([]string{"role", "tier", "x"}), rapid.SampledFrom([]string{"1", "2"}), 0, 3)
	return &argov1.PodTemplateMetadata{Labels: texts.Draw(t, name+" labels"), Annotations: texts.Draw(t, name+" annotations")}
}

func TestMetadataOfRolesLeavesNothingBehind(t *testing.T) {
	whole := parseYAML[corev1.PodTemplateSpec](t, storedTemplate)
	rapid.Check(t, func(r *rapid.T) {
		rs := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: *whole.DeepCopy()}}
		first, second := drawMetadata(r, "first"), drawMetadata(r, "second")
		as := SetEphemeralMetadata(SetEphemeralMetadata(rs, first), second)
		if once := SetEphemeralMetadata(rs, second); !equality.Semantic.DeepEqual(once, as) {
			r.Errorf("the role before is seen: %s", cmp.Diff(once, as))
		}
		if twice := SetEphemeralMetadata(as, second); !equality.Semantic.DeepEqual(as, twice) {
			r.Errorf("twice is not once: %s", cmp.Diff(as, twice))
		}
		if !equality.Semantic.DeepEqual(SetEphemeralMetadata(as, nil), rs) {
			r.Errorf("something stays: %s", cmp.Diff(rs, SetEphemeralMetadata(as, nil)))
		}
		if !RunsTemplate(as, whole) && len(whole.Labels) == 1 {
			r.Error("not found again under a role")
		}
		halfway := BeginEphemeralMetadata(SetEphemeralMetadata(rs, first), second)
		if done := SetEphemeralMetadata(halfway, second); !equality.Semantic.DeepEqual(done, as) {
			r.Errorf("a process that died halfway is seen: %s", cmp.Diff(done, as))
		}
		if back := SetEphemeralMetadata(halfway, first); !equality.Semantic.DeepEqual(back, SetEphemeralMetadata(rs, first)) {
			r.Errorf("halfway there is no way back: %s", cmp.Diff(back, SetEphemeralMetadata(rs, first)))
		}
		if !RunsTemplate(halfway, whole) && len(whole.Labels) == 1 {
			r.Error("not found again halfway")
		}
	})
}

// TestNewReplicaSetIsFound: for any template, its ReplicaSet is found, and not that of another template.
func TestNewReplicaSetIsFound(t *testing.T) {
	owner := parseYAML[argov1.Rollout](t, cart)
	images := rapid.SampledFrom([]string{"a", "a:latest", "a:1", "r:5000/a", "r:5000/a:1", "a@sha256:00", "a:latest@sha256:00"})
	rapid.Check(t, func(r *rapid.T) {
		spec := *owner.Spec.DeepCopy()
		spec.Template.Spec.Containers[0].Image = images.Draw(r, "image")
		spec.Template.Spec.HostNetwork = rapid.Bool().Draw(r, "host network")
		hash, err := rollout.PodHash(spec.Template, nil)
		if err != nil {
			r.Fatal(err)
		}
		avoids := rapid.SampledFrom([]string{"", "old"}).Draw(r, "avoids")
		rs := New(&owner, spec, rollout.ReplicaSetExists{Name: "cart-x", Hash: hash, Revision: 1, AvoidedHash: avoids, Metadata: drawMetadata(r, "role")})
		if got, _, err := FindByTemplate([]*appsv1.ReplicaSet{rs}, FindCriteria{Template: spec.Template}); err != nil || got != rs {
			r.Errorf("not found: %v", err)
		}
		if !RunsTemplate(rs, spec.Template) {
			r.Error("its pods are not those of the template")
		}
		other := *spec.Template.DeepCopy()
		other.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "V", Value: "2"}}
		if got, _, err := FindByTemplate([]*appsv1.ReplicaSet{rs}, FindCriteria{Template: other}); err != nil || got != nil {
			r.Errorf("found for another template: %v", err)
		}
		if RunsTemplate(rs, other) {
			r.Error("its pods are those of another template")
		}
	})
}
