package explain

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// Tree contains the revisions of one release with their workloads and pods, and the analyses in progress.
type Tree struct {
	// Revisions are sorted from the newest to the oldest.
	Revisions []TreeRevision `json:"revisions"`
	// Changes are the differences between the pod templates of the new revision and of the one that serves users; none: they are
	// equal, or one of them is unknown.
	Changes []TemplateChange `json:"changes,omitempty"`
	// AnalysisRuns and Experiments of a Rollout are those in progress, and the unsuccessful ones of a release that was not promoted.
	AnalysisRuns []TreeRun `json:"analysisRuns,omitempty"`
	Experiments  []TreeRun `json:"experiments,omitempty"`
	// Unread has one sentence for each kind of object that is missing because the user has no permission to read it.
	Unread []string `json:"unread,omitempty"`
}

// TreeRevision is one revision.
type TreeRevision struct {
	// Roles are canary and primary for a Canary; stable, canary, active, preview and new for a Rollout, or else old.
	Roles []string `json:"roles"`
	// Revision is Serin's hash for a Canary, and the hash of the pod template for a Rollout; empty: unknown. Number is the
	// revision number of a Rollout.
	Revision string `json:"revision,omitempty"`
	Number   int64  `json:"number,omitempty"`
	// Images of its containers; empty: unknown.
	Images []string `json:"images,omitempty"`
	// DesiredWeight is the share of requests that the current step sets, in percent; nil: the strategy has no weights.
	DesiredWeight *int `json:"desiredWeight,omitempty"`
	// ServedWeight is the share of requests that the revision receives, in percent; nil: unknown. ServedBy is what determines it.
	ServedWeight *int     `json:"servedWeight,omitempty"`
	ServedBy     ServedBy `json:"servedBy,omitempty"`
	// Confirmed reports whether the router serves the written route; nil: it does not report that. Reason explains false.
	Confirmed *bool  `json:"confirmed,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Mirrored is true while requests are copied to the revision.
	Mirrored bool `json:"mirrored,omitempty"`
	// Missing is true if the workload of the revision does not exist.
	Missing bool `json:"missing,omitempty"`
	// Workloads are the target or the primary of a Canary, and ReplicaSets of a Rollout.
	Workloads []TreeWorkload `json:"workloads,omitempty"`
}

// ServedBy is what determines the share of requests that a revision receives.
type ServedBy string

// What determines the share of requests.
const (
	// ByRoute: the weight in the route, which the router may not serve yet.
	ByRoute ServedBy = "route"
	// ByPods: the share of the available pods, without a router.
	ByPods ServedBy = "pods"
	// ByService: the selector of the active Service.
	ByService ServedBy = "service"
)

// TreeWorkload is a workload with its pods.
type TreeWorkload struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Desired is the desired number of pods, Ready the number of ready pods.
	Desired int32 `json:"desired"`
	Ready   int32 `json:"ready"`
	// ScaleDownAt is the time from which its pods may be removed.
	ScaleDownAt time.Time `json:"scaleDownAt,omitzero"`
	// Failure is the reason why pods cannot be created.
	Failure string `json:"failure,omitempty"`
	// ReplicaSets of a Deployment: the newest one, and older ones that have pods.
	ReplicaSets []TreeWorkload `json:"replicaSets,omitempty"`
	// Pods without problems are the last ones.
	Pods []TreePod `json:"pods,omitempty"`
}

// TreePod is one pod.
type TreePod struct {
	Name  string `json:"name"`
	Phase string `json:"phase,omitempty"`
	Ready bool   `json:"ready"`
	// Deleting is true while the pod is being terminated.
	Deleting bool      `json:"deleting,omitempty"`
	Restarts int32     `json:"restarts"`
	Created  time.Time `json:"created,omitzero"`
	// Reason is what prevents the pod from running, for example ImagePullBackOff; empty: nothing, or it resolves itself. Message is
	// the message of the kubelet, the image registry or the scheduler.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Container and Image are those of the failing container; empty: the pod as a whole fails.
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"`
}

// TreeRun is an AnalysisRun or an Experiment.
type TreeRun struct {
	Name string `json:"name"`
	// Type is the type of an AnalysisRun: Step, Background, PrePromotion or PostPromotion.
	Type    string `json:"type,omitempty"`
	Phase   string `json:"phase,omitempty"`
	Message string `json:"message,omitempty"`
	// Measurements are the numbers of measurements of an AnalysisRun by their results, without dry runs; none: it has not measured yet.
	Measurements *TreeMeasurements `json:"measurements,omitempty"`
}

// TreeMeasurements are numbers of measurements.
type TreeMeasurements struct {
	Successful   int32 `json:"successful"`
	Failed       int32 `json:"failed"`
	Inconclusive int32 `json:"inconclusive"`
	Error        int32 `json:"error"`
}

// Text lists the number of measurements with each result.
func (m TreeMeasurements) Text() string {
	return countText(argov1.MetricResult{Successful: m.Successful, Failed: m.Failed, Inconclusive: m.Inconclusive, Error: m.Error})
}

// TreeObjects are the objects of one release that its observation does not contain.
type TreeObjects struct {
	// Target and Primary are the workloads of a Canary; nil: it does not exist, has no pods, or cannot be read.
	Target, Primary *WorkloadObject
	// ReplicaSets are those of a Rollout, or of the Deployments of a Canary. ReplicaSetsUnread is true if they cannot be read.
	ReplicaSets       []appsv1.ReplicaSet
	ReplicaSetsUnread bool
	// Pods are those of all workloads.
	Pods []PodObject
	// Unread has one sentence for each kind of object that cannot be read.
	Unread []string
}

// WorkloadObject is a Deployment or a DaemonSet.
type WorkloadObject struct {
	Kind, Name string
	UID        types.UID
	Selector   *metav1.LabelSelector
	Template   corev1.PodTemplateSpec
	// Desired is the desired number of pods, Ready the number of ready pods.
	Desired, Ready int32
}

// PodObject is a pod with its problem; the zero problem means that there is none.
type PodObject struct {
	corev1.Pod

	Problem PodProblem
}

// Tree implements Observation.
func (observed *Canary) Tree(o TreeObjects, now time.Time) Tree {
	r, s := observed.Describe(now), observed.Snapshot
	target := TreeRevision{Roles: []string{"canary"}, Revision: r.Revision, Mirrored: r.Mirrored, Missing: !s.Workload.Target.Found}
	primary := TreeRevision{Roles: []string{"primary"}, Revision: r.PromotedRevision, Missing: r.PrimaryMissing}
	if s.Plan.HasRouter && !r.PrimaryMissing {
		target.DesiredWeight, primary.DesiredWeight = new(s.Status.CanaryWeight), new(release.Total-s.Status.CanaryWeight)
	}
	if target.DesiredWeight != nil && s.Route.Found && s.Route.Problem == "" && !slices.Contains(observed.Assumed, release.RoutePart) {
		target.ServedWeight, primary.ServedWeight = new(r.Weight), new(release.Total-r.Weight)
		target.ServedBy, primary.ServedBy = ByRoute, ByRoute
		switch s.Route.Confirmation {
		case canary.Confirmed:
			target.Confirmed, primary.Confirmed = new(true), new(true)
		case canary.Unconfirmed:
			target.Confirmed, primary.Confirmed, target.Reason = new(false), new(false), s.Route.Reason
		case canary.CannotTell:
		}
	}
	for _, side := range []struct {
		revision *TreeRevision
		object   *WorkloadObject
	}{{&target, o.Target}, {&primary, o.Primary}} {
		if side.object != nil {
			side.revision.Images = ImagesOf(side.object.Template)
			side.revision.Workloads = []TreeWorkload{o.workload(side.object)}
		}
	}
	t := Tree{Revisions: []TreeRevision{target, primary}, Unread: o.Unread}
	if o.Target != nil && o.Primary != nil {
		t.Changes = TemplateChanges(targetTemplate(o.Primary.Template), o.Target.Template)
	}
	return t
}

// workload returns the tree of a workload of a Canary.
func (o TreeObjects) workload(object *WorkloadObject) TreeWorkload {
	w := TreeWorkload{Kind: object.Kind, Name: object.Name, Desired: object.Desired, Ready: object.Ready}
	var own []appsv1.ReplicaSet
	for _, rs := range o.ReplicaSets {
		if controller := metav1.GetControllerOfNoCopy(&rs); controller != nil && controller.UID == object.UID {
			own = append(own, rs)
		}
	}
	slices.SortFunc(own, func(a, b appsv1.ReplicaSet) int {
		return cmp.Or(cmp.Compare(deploymentRevision(&b), deploymentRevision(&a)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	})
	for i := range own {
		if rs := o.replicaSet(&own[i]); i == 0 || hasPods(&own[i], rs) {
			w.ReplicaSets = append(w.ReplicaSets, rs)
		}
	}
	if len(own) == 0 {
		w.Pods = o.podsOf(object.UID, object.Selector, o.ReplicaSetsUnread)
	}
	return w
}

// hasPods reports whether a ReplicaSet has pods, or should have some.
func hasPods(rs *appsv1.ReplicaSet, w TreeWorkload) bool {
	return w.Desired > 0 || rs.Status.Replicas > 0 || len(w.Pods) > 0
}

func (o TreeObjects) replicaSet(rs *appsv1.ReplicaSet) TreeWorkload {
	desired := int32(1) // the default of the API
	if rs.Spec.Replicas != nil {
		desired = *rs.Spec.Replicas
	}
	return TreeWorkload{Kind: "ReplicaSet", Name: rs.Name, Desired: desired, Ready: rs.Status.ReadyReplicas, Pods: o.podsOf(rs.UID, rs.Spec.Selector, false)}
}

// podsOf returns the pods that an owner controls, those with problems first. Like the controllers of Kubernetes, it also counts
// matching pods that no object controls; with unknownSets, also those that a ReplicaSet controls, because it may be one of the owner.
func (o TreeObjects) podsOf(owner types.UID, selector *metav1.LabelSelector, unknownSets bool) []TreePod {
	matching, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		matching = labels.Nothing()
	}
	var out []TreePod
	for i := range o.Pods {
		pod := &o.Pods[i]
		controller := metav1.GetControllerOfNoCopy(pod)
		adopted := controller == nil || unknownSets && controller.Kind == "ReplicaSet"
		if controller != nil && controller.UID == owner || adopted && matching.Matches(labels.Set(pod.Labels)) {
			out = append(out, newTreePod(pod))
		}
	}
	slices.SortFunc(out, func(a, b TreePod) int {
		return cmp.Or(cmp.Compare(a.severity(), b.severity()), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// severity orders pods: those with problems, those that are not ready, and all others.
func (p TreePod) severity() int {
	switch {
	case p.Reason != "":
		return 0
	case !p.Ready && !p.Deleting:
		return 1
	case p.Deleting:
		return 2
	default:
		return 3
	}
}

func newTreePod(pod *PodObject) TreePod {
	p := TreePod{Name: pod.Name, Phase: string(pod.Status.Phase), Deleting: pod.DeletionTimestamp != nil, Created: toUTC(pod.CreationTimestamp.Time)}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			p.Ready = condition.Status == corev1.ConditionTrue
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			p.Restarts += statuses[i].RestartCount
		}
	}
	p.Reason, p.Message, p.Container, p.Image = pod.Problem.Reason, pod.Problem.Message, pod.Problem.Container, pod.Problem.Image
	return p
}

// deploymentRevision returns the revision number that a Deployment gave its ReplicaSet; 0: unknown.
func deploymentRevision(rs *appsv1.ReplicaSet) int64 {
	return parseRevision(rs.Annotations["deployment.kubernetes.io/revision"])
}

func parseRevision(text string) int64 {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// ImagesOf returns the images of the containers of a pod template, in their order.
func ImagesOf(template corev1.PodTemplateSpec) []string {
	var out []string
	for i := range template.Spec.Containers {
		out = append(out, template.Spec.Containers[i].Image)
	}
	return out
}

// Tree implements Observation.
func (observed *Rollout) Tree(o TreeObjects, now time.Time) Tree {
	r, s := observed.Describe(now), observed.Snapshot
	t := Tree{Unread: o.Unread}
	found := map[string]bool{}
	for i := range o.ReplicaSets {
		rs := &o.ReplicaSets[i]
		hash := rs.Labels[argov1.PodTemplateHashLabel]
		w, roles := o.replicaSet(rs), observed.roles(hash)
		if len(roles) == 0 && !hasPods(rs, w) {
			continue
		}
		found[hash] = true
		for _, set := range s.ReplicaSets {
			if set.Name == rs.Name {
				w.ScaleDownAt, w.Failure = toUTC(set.ScaleDownDeadline), set.Failure
			}
		}
		t.Revisions = append(t.Revisions, TreeRevision{
			Roles: roles, Revision: hash, Number: parseRevision(rs.Annotations[argov1.RevisionAnnotation]), Images: ImagesOf(rs.Spec.Template), Workloads: []TreeWorkload{w},
		})
	}
	slices.SortStableFunc(t.Revisions, func(a, b TreeRevision) int { return cmp.Compare(b.Number, a.Number) })
	if hash := s.Status.StableRS; hash != "" && !found[hash] {
		found[hash] = true
		t.Revisions = append(t.Revisions, TreeRevision{Roles: observed.roles(hash), Revision: hash, Missing: !o.ReplicaSetsUnread})
	}
	if hash := s.Hash; hash != "" && !found[hash] {
		t.Revisions = slices.Insert(t.Revisions, 0, TreeRevision{Roles: observed.roles(hash), Revision: hash, Images: ImagesOf(s.Spec.Template), Missing: !o.ReplicaSetsUnread})
	}
	for i := range t.Revisions {
		observed.setWeights(&t.Revisions[i], &r)
		if len(t.Revisions[i].Roles) == 0 {
			t.Revisions[i].Roles = []string{"old"}
		}
	}
	t.AnalysisRuns, t.Experiments = observed.currentRuns(&r), observed.currentExperiments(&r)
	if stable, current := o.templateOf(s.Status.StableRS), o.templateOf(s.Hash); stable != nil && current != nil {
		t.Changes = TemplateChanges(*stable, *current)
	}
	return t
}

// templateOf returns the pod template of a ReplicaSet; nil: there is none.
func (o TreeObjects) templateOf(hash string) *corev1.PodTemplateSpec {
	i := slices.IndexFunc(o.ReplicaSets, func(rs appsv1.ReplicaSet) bool { return hash != "" && rs.Labels[argov1.PodTemplateHashLabel] == hash })
	if i < 0 {
		return nil
	}
	return &o.ReplicaSets[i].Spec.Template
}

// roles returns the roles of a revision; none for an old one.
func (observed *Rollout) roles(hash string) []string {
	s, out := observed.Snapshot, []string(nil)
	blueGreen := s.Spec.Strategy.BlueGreen != nil
	if hash == "" { // as the selectors that are not set yet
		return nil
	}
	if hash == s.Status.StableRS {
		out = append(out, "stable")
	}
	switch selected := s.Status.BlueGreen; {
	case blueGreen && hash == selected.ActiveSelector:
		out = append(out, "active")
	case blueGreen && hash == selected.PreviewSelector:
		out = append(out, "preview")
	case hash != s.Hash || len(out) > 0:
	case blueGreen || s.Status.StableRS == "":
		out = append(out, "new")
	default:
		out = append(out, "canary")
	}
	return out
}

// setWeights sets the weights of a revision.
func (observed *Rollout) setWeights(revision *TreeRevision, r *Release) {
	s := observed.Snapshot
	isNew, isStable := slices.Contains(revision.Roles, "canary"), slices.Contains(revision.Roles, "stable")
	switch {
	case s.Spec.Strategy.BlueGreen != nil:
		if slices.Contains(revision.Roles, "active") {
			revision.ServedWeight, revision.ServedBy = new(release.Total), ByService
		}
		return
	case !isNew && !isStable:
		return
	case s.Hash == s.Status.StableRS && len(observed.Routers) == 0: // nothing splits the requests
		return
	}
	desired, served := observed.stepWeight(r), r.Weight
	if isStable {
		desired, served = release.Total-desired, release.Total-served
		// Experiments may have a share as well.
		if weights := s.Status.Canary.Weights; weights != nil && len(observed.Routers) > 0 && weights.Stable.PodTemplateHash == revision.Revision {
			served = percent(weights.Stable.Weight, s.Spec.Strategy.Canary)
		}
	}
	revision.DesiredWeight = &desired
	switch {
	case len(observed.Routers) > 0:
		revision.ServedWeight, revision.ServedBy, revision.Confirmed = &served, ByRoute, s.Route.Confirmed
	case !slices.Contains(observed.Assumed, release.WorkloadPart):
		revision.ServedWeight, revision.ServedBy = &served, ByPods
	}
	if isNew && revision.Confirmed != nil && !*revision.Confirmed {
		revision.Reason = s.Route.UnconfirmedReason
	}
}

// stepWeight returns the weight of the new revision that the steps set, in percent; 0 if it is already the stable one.
func (observed *Rollout) stepWeight(r *Release) int {
	c, index := observed.Snapshot.Spec.Strategy.Canary, observed.Snapshot.Status.CurrentStepIndex
	switch {
	case c == nil, r.Result != "", observed.Snapshot.Hash == observed.Snapshot.Status.StableRS:
		return 0
	case index == nil, int(*index) >= len(c.Steps):
		return release.Total
	default:
		return percent(pods.WeightAt(c.Steps, *index), c)
	}
}

// percent converts a weight, which is a share of maxTrafficWeight, to percent.
func percent(weight int32, c *argov1.CanaryStrategy) int {
	return int(weight) * release.Total / max(int(pods.MaxWeight(c)), 1)
}

// currentRuns returns the AnalysisRuns in progress, and those without success of a release that was not promoted.
func (observed *Rollout) currentRuns(r *Release) []TreeRun {
	var out []TreeRun
	for _, run := range observed.Snapshot.AnalysisRuns {
		if !run.Deleting && observed.isCurrent(run.Phase, run.Hash, r) {
			out = append(out, TreeRun{Name: run.Name, Type: run.Type, Phase: string(run.Phase), Message: run.Message, Measurements: observed.measurementsOf(run.Name)})
		}
	}
	return out
}

// measurementsOf counts the measurements of an AnalysisRun.
func (observed *Rollout) measurementsOf(name string) *TreeMeasurements {
	i := slices.IndexFunc(observed.Runs, func(run argov1.AnalysisRun) bool { return run.Name == name })
	if i < 0 {
		return nil
	}
	var sum TreeMeasurements
	for _, result := range observed.Runs[i].Status.MetricResults {
		if !result.DryRun {
			sum.Successful, sum.Failed = sum.Successful+result.Successful, sum.Failed+result.Failed
			sum.Inconclusive, sum.Error = sum.Inconclusive+result.Inconclusive, sum.Error+result.Error
		}
	}
	if sum == (TreeMeasurements{}) {
		return nil
	}
	return &sum
}

// currentExperiments returns the Experiments in progress, and those without success of a release that was not promoted.
func (observed *Rollout) currentExperiments(r *Release) []TreeRun {
	var out []TreeRun
	for _, experiment := range observed.Snapshot.Experiments {
		if !experiment.Deleting && observed.isCurrent(experiment.Phase, experiment.Hash, r) {
			out = append(out, TreeRun{Name: experiment.Name, Phase: string(experiment.Phase), Message: experiment.Message})
		}
	}
	return out
}

func (observed *Rollout) isCurrent(phase argov1.AnalysisPhase, hash string, r *Release) bool {
	unsuccessful := phase.Completed() && phase != argov1.AnalysisPhaseSuccessful
	return !phase.Completed() || unsuccessful && hash == observed.Snapshot.Hash && r.Result != release.Promoted
}
