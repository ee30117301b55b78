//go:build linux

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// flaggerObjects are the objects of Canary left that Flagger creates, as they were recorded. OWNER is the UID of the Canary,
// CANARY the weight of the canary.
const flaggerObjects = `
apiVersion: v1
kind: Service
metadata:
  name: left
  labels: {app: left}
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: left, uid: OWNER, controller: true, blockOwnerDeletion: true}]
spec: {type: ClusterIP, selector: {app: left-primary}, ports: [{name: http, port: 80, protocol: TCP, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata:
  name: left-primary
  labels: {app: left-primary}
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: left, uid: OWNER, controller: true, blockOwnerDeletion: true}]
spec: {type: ClusterIP, selector: {app: left-primary}, ports: [{name: http, port: 80, protocol: TCP, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata:
  name: left-canary
  labels: {app: left-canary}
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: left, uid: OWNER, controller: true, blockOwnerDeletion: true}]
spec: {type: ClusterIP, selector: {app: left}, ports: [{name: http, port: 80, protocol: TCP, targetPort: http}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: left
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: left, uid: OWNER, controller: true, blockOwnerDeletion: true}]
spec:
  parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gateway, namespace: playground}]
  hostnames: [HOST]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs:
    - {group: "", kind: Service, name: left-primary, port: 80, weight: PRIMARY}
    - {group: "", kind: Service, name: left-canary, port: 80, weight: CANARY}
`

const flaggerCanary = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: left}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: left}
  service:
    port: 80
    targetPort: http
    hosts: [HOST]
    gatewayRefs: [{name: gateway, namespace: playground}]
  analysis:
    interval: 2s
    threshold: 2
    stepWeights: [20, 50]
`

// createFlaggerState creates the objects that Flagger leaves behind: a Canary in a phase, with the versions of target and
// primary, and the weight of the canary.
func (s *environment) createFlaggerState(host, phase, target, primary string, replicas, weight int) {
	s.t.Helper()
	s.apply(replaceTexts(s.t, flaggerCanary, "HOST", host))
	owner := string(s.get(canaries, "left").GetUID())
	copyOf := replaceTexts(s.t, deployment(s.t, "left-primary", 2), "demo:v1", "demo:"+primary, `{"annotations":{`, `{"annotations":{"flagger-id":"2d7c1f2e-6f0c-4b6e-9d43-0a5b0c1d2e3f",`,
		`"metadata":{"name":"left-primary"}`, fmt.Sprintf(`"metadata":{"name":"left-primary","labels":{"app":"left-primary"},"ownerReferences":[{"apiVersion":"flagger.app/v1beta1","kind":"Canary","name":"left","uid":%q,"controller":true,"blockOwnerDeletion":true}]}`, owner))
	s.apply(replaceTexts(s.t, deployment(s.t, "left", replicas), "demo:v1", "demo:"+target) + copyOf)
	s.apply(replaceTexts(s.t, flaggerObjects, "OWNER", owner, "HOST", host, "PRIMARY", fmt.Sprint(100-weight), "CANARY", fmt.Sprint(weight)))
	s.waitForAvailable("left", int32(replicas))
	s.waitForAvailable("left-primary", 2)
	now := time.Now().UTC().Format(time.RFC3339)
	status := fmt.Sprintf(`{"status":{"phase":%q,"canaryWeight":%d,"failedChecks":0,"iterations":0,"trackedConfigs":{},"lastAppliedSpec":"5fcc94f9fb","lastPromotedSpec":"7b67dd54f9",
		"lastTransitionTime":%q,"conditions":[{"type":"Promoted","status":"Unknown","reason":%q,"message":"m","lastUpdateTime":%q,"lastTransitionTime":%q}]}}`, phase, weight, now, phase, now, now)
	_, err := shared.Dynamic.Resource(canaries).Namespace(s.namespace).Patch(s.t.Context(), "left", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	if err != nil {
		s.t.Fatal(err)
	}
}

// describeObjects returns, as one text, what must not change when Serin replaces Flagger: the pods, their restarts, and the
// versions of the objects that Flagger created.
func (s *environment) describeObjects() string {
	s.t.Helper()
	var out strings.Builder
	running, err := shared.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app in (left, left-primary)"})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pod := range running.Items {
		restarts := int32(0)
		for _, c := range pod.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		fmt.Fprintln(&out, "pod", pod.Name, pod.UID, restarts)
	}
	sets, err := shared.Client.AppsV1().ReplicaSets(s.namespace).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, set := range sets.Items {
		fmt.Fprintln(&out, "replicaset", set.Name)
	}
	for _, name := range []string{"left", "left-primary", "left-canary"} {
		fmt.Fprintln(&out, "service", name, s.get(services, name).GetResourceVersion())
	}
	for _, name := range []string{"left", "left-primary"} {
		fmt.Fprintln(&out, "deployment", name, s.get(deployments, name).GetGeneration())
	}
	fmt.Fprintln(&out, "route", s.get(httpRoutes, "left").GetGeneration())
	return out.String()
}

// waitForAdoption waits until Serin has written its revision to the status.
func (s *environment) waitForAdoption() {
	s.t.Helper()
	s.waitForObject("the Canary is adopted", canaries, "left", func(object *unstructured.Unstructured) error {
		if revision, _, _ := unstructured.NestedString(object.Object, "status", "serin", "revision"); revision == "" {
			return errors.New("the status has no revision of Serin")
		}
		return nil
	})
}

// TestCanaryOfFlaggerIsAdoptedWithoutChanges replaces Flagger by Serin under load, while the Canary is idle and in the middle
// of a release.
func TestCanaryOfFlaggerIsAdoptedWithoutChanges(t *testing.T) {
	for _, tt := range []struct {
		name, phase, target, primary string
		replicas, weight             int
	}{
		{"left-at-rest", "Succeeded", "v1", "v1", 0, 0},
		{"left-mid-release", "Progressing", "v2", "v1", 2, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newEnvironment(t, tt.name)
			host := tt.name + ".test"
			s.createFlaggerState(host, tt.phase, tt.target, tt.primary, tt.replicas, tt.weight)
			s.patch(canaries, "left", `{"spec":{"analysis":{"interval":"1h"}}}`) // no window may end before the objects are compared
			if tt.weight > 0 {
				s.waitForAnswers(host, tt.primary, tt.target)
			}
			client := s.startLoad(host, 40)
			before := s.describeObjects()
			report := s.checkMigration(0)
			wanted := "adopt"
			if tt.weight > 0 {
				wanted = "continue"
			}
			if len(report.Canaries) != 1 || report.Canaries[0].Outcome != wanted || len(report.Canaries[0].Writes) > 0 {
				t.Errorf("serin migrate --check: %+v, want %s and no writes", report, wanted)
			}

			r := s.follow("left")
			s.startSerin()
			s.waitForAdoption()
			if after := s.describeObjects(); after != before {
				t.Errorf("the swap changed objects:\nbefore\n%s\nafter\n%s", before, after)
			}
			s.patch(canaries, "left", `{"spec":{"analysis":{"interval":"2s"}}}`)
			if tt.weight > 0 {
				r.waitForEvent(fmt.Sprintf("Adopted the release of left.%s in phase Progressing at weight %d", s.namespace, tt.weight))
				r.waitForEnd("Succeeded")
			}
			waitForRequests(t, client, 40)
			if started := s.countEvents("left", "New revision detected!"); started != 0 {
				t.Errorf("the swap started %d releases", started)
			}

			next := s.follow("left")
			s.deployVersion("left", "v3")
			next.waitForEnd("Succeeded")
			next.waitForEvent("Promotion completed!")
			s.waitForPodsDeleted("app=left")
			waitForRequests(t, client, 40, "v3")
			if started := s.countEvents("left", "New revision detected!"); started != 1 {
				t.Errorf("one change started %d releases, want 1", started)
			}
			if counts := client.Counts(); counts.Failed() > 0 {
				t.Errorf("%d requests failed: %s", counts.Failed(), counts)
			}
		})
	}
}

// migration contains the fields of the JSON output of serin migrate --check that are used here.
type migration struct {
	Ready     bool     `json:"ready"`
	Sentences []string `json:"sentences"`
	Canaries  []struct {
		Outcome string   `json:"outcome"`
		Writes  []string `json:"writes"`
	} `json:"canaries"`
}

// checkMigration runs serin migrate --check as a user with read permissions only.
func (s *environment) checkMigration(code int) migration {
	s.t.Helper()
	reader := commandRunner{t: s.t, kubeconfig: readerKubeconfig(s.t, s.namespace)}
	p := reader.run(code, "migrate", "--check", "-n", s.namespace, "--controller-flags", strings.Join(shortIntervalFlags()[1:], " "), "-o", "json")
	var report migration
	if err := json.Unmarshal([]byte(p.stdout), &report); err != nil {
		s.t.Fatalf("%v: %s", err, p)
	}
	return report
}

// flaggerRBAC permits the service account "default" to update the status of Canaries, as the permissions of Flagger do.
const flaggerRBAC = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: flagger}
rules: [{apiGroups: [flagger.app], resources: [canaries, canaries/status], verbs: [get, list, watch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: flagger}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: flagger}
subjects: [{kind: ServiceAccount, name: default}]
`

// TestSerinDoesNotActWhileFlaggerRuns covers the two signs of a running Flagger, its pods and its Lease. Serin acts when both
// have ended.
func TestSerinDoesNotActWhileFlaggerRuns(t *testing.T) {
	t.Parallel()
	s := newEnvironment(t, "left-living")
	s.createFlaggerState("left-living.test", "Progressing", "v2", "v1", 2, 20)
	// A program with the command-line flags of Flagger. The playground has no image of Flagger and ignores the command.
	program := replaceTexts(t, deployment(t, "canary-operator", 1), `"image":`, `"command":["-enable-config-tracking"],"image":`)
	s.apply(program)
	s.waitForAvailable("canary-operator", 1)
	s.apply(flaggerRBAC) // without these permissions the Deployment is not regarded as Flagger
	before := s.describeObjects()
	version := s.get(canaries, "left").GetResourceVersion()

	r := s.follow("left")
	s.startSerin()
	r.waitForEvent("Flagger acts on this Canary (Deployment canary-operator of namespace left-living has ready pods), so Serin does not")
	sh := commandRunner{t, shared.Kubeconfig}
	sh.checkOutput(sh.run(codeUserAction, "why", "left", "-n", s.namespace, "--controller-flags=-namespace="+s.namespace),
		"It waits for peer: Flagger acts on this Canary (Deployment canary-operator of namespace left-living has ready pods)",
		"kubectl -n left-living scale deployment/canary-operator --replicas=0")
	if report := s.checkMigration(0); !strings.Contains(strings.Join(report.Sentences, "\n"), "Flagger is running: Deployment canary-operator") {
		t.Errorf("serin migrate --check does not report that Flagger is running: %+v", report)
	}

	holder := "canary-operator-of-before_1"
	lease := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"flagger-leader-election"},"spec":{"holderIdentity":%q,"leaseDurationSeconds":3600,"renewTime":%q}}`,
		holder, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	s.apply(lease)
	s.patch(deployments, "canary-operator", `{"spec":{"replicas":0}}`)
	s.waitForDeployment("is gone", "canary-operator", func(d appsv1.Deployment) error {
		if d.Status.ReadyReplicas > 0 {
			return fmt.Errorf("status %+v", d.Status)
		}
		return nil
	})
	r.waitForEvent("Flagger acts on this Canary (Lease flagger-leader-election of namespace left-living is held by " + holder + ")")
	if after := s.get(canaries, "left").GetResourceVersion(); after != version {
		t.Errorf("Serin wrote to a Canary of a running Flagger: version %s became %s", version, after)
	}
	if after := s.describeObjects(); after != before {
		t.Errorf("Serin changed objects of a running Flagger:\nbefore\n%s\nafter\n%s", before, after)
	}

	s.patch(leases, "flagger-leader-election", `{"spec":{"holderIdentity":""}}`)
	r.waitForEvent("Adopted the release of left.left-living in phase Progressing at weight 20")
	r.waitForEnd("Succeeded")
}
