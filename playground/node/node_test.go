//go:build linux

package node_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/waittest"
	playground "github.com/serin-dev/serin/playground"
	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/network"
	"github.com/serin-dev/serin/playground/node"
	"github.com/serin-dev/serin/playground/podroot"
)

// programVariable passes the path of the demo application from the outer half of this program to the inner one.
const programVariable = "NODE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	podroot.BecomePod()
	playground.Enter(func(ctx context.Context) error {
		builder, err := build.New(nil)
		if err != nil {
			return err
		}
		program, err := builder.DemoApp(ctx)
		if err != nil {
			return err
		}
		return os.Setenv(programVariable, program)
	})
	os.Exit(m.Run())
}

// startNode starts a node with a fake API server that only stores objects: there is no scheduler and no controller.
func startNode(t *testing.T) kubernetes.Interface {
	t.Helper()
	client := fake.NewClientset()
	program := os.Getenv(programVariable)
	n, err := network.New()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	kubelet := node.New(node.Options{
		Name: "here", Version: "v1", Client: client, Network: n, Folder: folder, Clock: clock.RealClock{},
		Images: map[string]node.Image{
			"serin.dev/demo": {Program: program, TagVariable: "VERSION"},
			"serin.dev/few":  {Program: program, Tags: []string{"v1", "v3"}},
		},
		Certificate: tls.Certificate{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err := kubelet.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- kubelet.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		logs, _ := filepath.Glob(filepath.Join(folder, "logs", "*"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", filepath.Base(log), text)
		}
	})
	return client
}

func pod(name string, change func(*corev1.PodSpec, *corev1.Container)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name + "-uid"), Labels: map[string]string{"app": "cart"}},
		Spec: corev1.PodSpec{
			NodeName: "here", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "app", Image: "serin.dev/demo:v1", ReadinessProbe: &corev1.Probe{
				PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)}},
			}}},
		},
	}
	change(&p.Spec, &p.Spec.Containers[0])
	return p
}

func create(t *testing.T, client kubernetes.Interface, p *corev1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitForPod returns the pod once check returns nil.
func waitForPod(t *testing.T, client kubernetes.Interface, name string, check func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	waittest.Until(t, "the check of pod "+name+" succeeds", func() (err error) {
		if found, err = client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(found)
	})
	return found
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return "absent"
}

func checkReady(p *corev1.Pod) error {
	if condition(p, corev1.PodReady) != corev1.ConditionTrue {
		return fmt.Errorf("not ready: %+v", p.Status)
	}
	return nil
}

func checkWaiting(reason string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no container waits with %s: %+v", reason, p.Status.ContainerStatuses)
	}
}

func get(t *testing.T, p *corev1.Pod, path string) (int, http.Header) {
	t.Helper()
	response, err := http.Get("http://" + p.Status.PodIP + ":8080" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header
}

func TestPodBecomesReadyAndAnswersOnItsAddress(t *testing.T) {
	client := startNode(t)
	create(t, client, pod("one", func(*corev1.PodSpec, *corev1.Container) {}))
	create(t, client, pod("two", func(_ *corev1.PodSpec, c *corev1.Container) {
		c.Image = "serin.dev/demo:v2"
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
		c.ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}
	}))
	one, two := waitForPod(t, client, "one", checkReady), waitForPod(t, client, "two", checkReady)
	if one.Status.PodIP == two.Status.PodIP || one.Status.Phase != corev1.PodRunning {
		t.Errorf("pods have addresses %s and %s, phase %s", one.Status.PodIP, two.Status.PodIP, one.Status.Phase)
	}
	for p, want := range map[*corev1.Pod]string{one: "v1", two: "v2"} {
		if _, header := get(t, p, "/"); header.Get("X-Version") != want || header.Get("X-Pod") != p.Name {
			t.Errorf("pod %s answered %v", p.Name, header)
		}
	}
}

func TestConfigurationReachesTheProgram(t *testing.T) {
	client := startNode(t)
	data := map[string]string{"hello": "from a ConfigMap", "PREFIXED": "x"}
	if _, err := client.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "config", Namespace: "shop"}, Data: data,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets("shop").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret", Namespace: "shop"}, Data: map[string][]byte{"word": []byte("from a Secret")},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fromConfig := corev1.LocalObjectReference{Name: "config"}
	fromSecret := corev1.LocalObjectReference{Name: "secret"}
	volume := func(source corev1.VolumeSource, file string) func(*corev1.PodSpec, *corev1.Container) {
		return func(s *corev1.PodSpec, c *corev1.Container) {
			s.Volumes = []corev1.Volume{{Name: "files", VolumeSource: source}}
			c.VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/etc/app", ReadOnly: true}}
			c.Env = []corev1.EnvVar{{Name: "MESSAGE_FILE", Value: "/etc/app/" + file}}
		}
	}
	variable := func(source corev1.EnvVarSource) func(*corev1.PodSpec, *corev1.Container) {
		return func(_ *corev1.PodSpec, c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "MESSAGE", ValueFrom: &source}}
		}
	}
	for _, c := range []struct {
		name, want string
		change     func(*corev1.PodSpec, *corev1.Container)
	}{
		{"config-key", "from a ConfigMap", variable(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: fromConfig, Key: "hello"}})},
		{"secret-key", "from a Secret", variable(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: fromSecret, Key: "word"}})},
		{"field", "cart", variable(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}})},
		{"config-volume", "from a ConfigMap", volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: fromConfig}}, "hello")},
		{"secret-volume", "from a Secret", volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: "secret", Items: []corev1.KeyToPath{{Key: "word", Path: "sub/word"}},
		}}, "sub/word")},
		{"projected", "from a Secret", volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: fromConfig}}, {Secret: &corev1.SecretProjection{LocalObjectReference: fromSecret}},
		}}}, "word")},
		{"env-from", "x and $(UNKNOWN) $(PLAIN)", func(_ *corev1.PodSpec, c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{Prefix: "A_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: fromConfig}}}
			c.Env = []corev1.EnvVar{{Name: "PLAIN", Value: "p"}, {Name: "MESSAGE", Value: "$(A_PREFIXED) and $(UNKNOWN) $$(PLAIN)"}}
		}},
		{"optional", "", variable(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}, Key: "k", Optional: new(true),
		}})},
	} {
		create(t, client, pod(c.name, c.change))
		if _, header := get(t, waitForPod(t, client, c.name, checkReady), "/"); header.Get("X-Message") != c.want {
			t.Errorf("%s: the message of the program is %q, want %q", c.name, header.Get("X-Message"), c.want)
		}
	}

	create(t, client, pod("missing", variable(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "later"}, Key: "hello",
	}})))
	waitForPod(t, client, "missing", checkWaiting("CreateContainerConfigError"))
	if _, err := client.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "later", Namespace: "shop"}, Data: data,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPod(t, client, "missing", checkReady)
}

func TestPodsThatCannotStartReportTheReason(t *testing.T) {
	client := startNode(t)
	create(t, client, pod("unknown", func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "example.com:5000/missing" }))
	create(t, client, pod("crashing", func(_ *corev1.PodSpec, c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "CRASH_AFTER", Value: "0s"}}
	}))
	create(t, client, pod("known", func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "serin.dev/few:v3" }))
	create(t, client, pod("other", func(_ *corev1.PodSpec, c *corev1.Container) { c.Image = "serin.dev/few:v2" }))
	waitForPod(t, client, "known", checkReady)
	waitForPod(t, client, "other", checkWaiting("ImagePullBackOff"))
	p := waitForPod(t, client, "unknown", checkWaiting("ImagePullBackOff"))
	if p.Status.Phase != corev1.PodPending || condition(p, corev1.PodReady) != corev1.ConditionFalse {
		t.Errorf("unknown image: %+v", p.Status)
	}
	p = waitForPod(t, client, "crashing", checkWaiting("CrashLoopBackOff"))
	s := p.Status.ContainerStatuses[0]
	if p.Status.Phase != corev1.PodRunning || s.RestartCount < 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 1 {
		t.Errorf("crashing: %+v", p.Status)
	}
	waitForPod(t, client, "crashing", func(p *corev1.Pod) error {
		if n := p.Status.ContainerStatuses[0].RestartCount; n < 3 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
}

func TestReadinessFollowsTheProbe(t *testing.T) {
	client := startNode(t)
	create(t, client, pod("late", func(_ *corev1.PodSpec, c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "READY_AFTER", Value: "300ms"}, {Name: "DRAIN", Value: "1h"}}
	}))
	waitForPod(t, client, "late", func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		if checkReady(p) == nil {
			t.Error("the pod is ready before READY_AFTER")
		}
		return nil
	})
	waitForPod(t, client, "late", checkReady)
}

func TestPodIsReadyOnceItsReadinessGatesAreMet(t *testing.T) {
	client := startNode(t)
	create(t, client, pod("gated", func(p *corev1.PodSpec, _ *corev1.Container) {
		p.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/admitted"}}
	}))
	p := waitForPod(t, client, "gated", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Reason == "ReadinessGatesNotReady" {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/admitted", Status: corev1.ConditionTrue})
	if _, err := client.CoreV1().Pods("shop").UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPod(t, client, "gated", checkReady)
}

// terminate requests the deletion of a pod as the API server does: the object remains, with a deletion timestamp.
func terminate(t *testing.T, client kubernetes.Interface, name string, grace int64) {
	t.Helper()
	p, err := client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), &grace
	if _, err := client.CoreV1().Pods("shop").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func waitForDeletion(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	waittest.Until(t, "pod "+name+" is deleted", func() error {
		p, err := client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return cmp.Or(err, fmt.Errorf("status %+v", p.Status))
	})
}

func TestTerminatingPodDrainsAndIsDeleted(t *testing.T) {
	client := startNode(t)
	create(t, client, pod("draining", func(_ *corev1.PodSpec, c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "DRAIN", Value: "2s"}}
		c.ReadinessProbe.FailureThreshold = 1
	}))
	waitForPod(t, client, "draining", checkReady)
	terminate(t, client, "draining", 3600)
	p := waitForPod(t, client, "draining", func(p *corev1.Pod) error {
		if checkReady(p) == nil {
			return fmt.Errorf("still ready")
		}
		return nil
	})
	if status, _ := get(t, p, "/"); status != http.StatusOK {
		t.Errorf("answered %d while draining", status)
	}
	waitForDeletion(t, client, "draining")
}

func TestPodThatDoesNotEndIsKilledAfterItsGracePeriod(t *testing.T) {
	client := startNode(t)
	create(t, client, pod("stubborn", func(_ *corev1.PodSpec, c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "DRAIN", Value: "1h"}}
	}))
	p := waitForPod(t, client, "stubborn", checkReady)
	terminate(t, client, "stubborn", 0)
	waitForDeletion(t, client, "stubborn")
	if response, err := http.Get("http://" + p.Status.PodIP + ":8080/"); err == nil {
		response.Body.Close()
		t.Error("the program still answers")
	}
}

func TestRestartPolicyDeterminesTheEndOfAPod(t *testing.T) {
	client := startNode(t)
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure} {
		create(t, client, pod(strings.ToLower(string(policy)), func(s *corev1.PodSpec, c *corev1.Container) {
			s.RestartPolicy = policy
			c.Env = []corev1.EnvVar{{Name: "CRASH_AFTER", Value: "0s"}}
		}))
	}
	waitForPod(t, client, "never", func(p *corev1.Pod) error {
		if p.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		return nil
	})
	waitForPod(t, client, "onfailure", checkWaiting("CrashLoopBackOff"))
}

func TestInitContainersRunFirst(t *testing.T) {
	client := startNode(t)
	create(t, client, pod("prepared", func(s *corev1.PodSpec, c *corev1.Container) {
		first := *c.DeepCopy()
		first.Name, first.ReadinessProbe = "first", nil
		first.Env = []corev1.EnvVar{{Name: "CRASH_AFTER", Value: "0s"}}
		s.InitContainers = []corev1.Container{first}
	}))
	p := waitForPod(t, client, "prepared", func(p *corev1.Pod) error {
		if len(p.Status.InitContainerStatuses) == 0 || p.Status.InitContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("init containers: %+v", p.Status.InitContainerStatuses)
		}
		return nil
	})
	if p.Status.Phase != corev1.PodPending || condition(p, corev1.PodInitialized) != corev1.ConditionFalse || checkWaiting("PodInitializing")(p) != nil {
		t.Errorf("with an init container that fails: %+v", p.Status)
	}
}
