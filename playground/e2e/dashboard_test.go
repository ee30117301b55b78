//go:build linux

package e2e_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/apiproxy"
	"github.com/serin-dev/serin/playground/browser"
)

// startDashboard starts a dashboard and returns the link that it prints.
func startDashboard(t *testing.T, kubeconfig, namespace string, flags ...string) string {
	t.Helper()
	dashboard := commandRunner{t, kubeconfig}.start(append([]string{"dashboard", "-n", namespace, "--controller-flags=-namespace=" + namespace}, flags...)...)
	dashboard.waitForOutput("\n")
	printed, _ := dashboard.printed()
	return strings.TrimSpace(printed)
}

// proxiedKubeconfig returns a kubeconfig for a proxy of the API server, which the test can close.
func proxiedKubeconfig(t *testing.T) (string, *apiproxy.Proxy) {
	t.Helper()
	proxy, err := apiproxy.Start(t.Context(), shared.Config)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(shared.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthority, cluster.CertificateAuthorityData = proxy.URL, "", nil
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file, proxy
}

// hostileText must appear as it is: it runs no script and becomes no element.
const hostileText = `<img src="missing" onerror="window.hostile = true"><b>bold</b>`

// TestDashboardShowsAndControlsAReleaseInABrowser follows a Rollout from the list to its promotion with the mouse, and ends with an
// API server that stops.
func TestDashboardShowsAndControlsAReleaseInABrowser(t *testing.T) {
	t.Parallel()
	const namespace = "dashboard"
	page := browser.Open(t)
	s := startEnvironment(t, namespace)
	s.apply(rolloutManifest(t, "cart", 2, `{canary: {steps: [{setWeight: 50}, {pause: {}}, {setWeight: 100}]}}`))
	healthy := s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	kubeconfig, proxy := proxiedKubeconfig(t)
	page.Open(startDashboard(t, kubeconfig, namespace))
	page.WaitForText("Idle (1)")
	page.ClickUntil("#list button", "document.querySelector('a.row')") // unfolds the idle releases
	page.WaitForText("Healthy")
	page.ClickUntil("#list button", "!document.querySelector('a.row')")

	s.releaseVersion("cart", "v2")
	page.WaitForText("Needs you (1)")
	page.WaitForText("until the user promotes the rollout")
	page.Check("fleet")
	page.Press("j", "Enter") // the first release, without the mouse
	page.WaitForText("step 2 of 3; the new revision receives 50% of the traffic")
	page.Check("release")
	s.createEvent(&healthy, hostileText)
	createdAt := time.Now()
	page.WaitForText(hostileText)
	logMeasured(t, "an event on the dashboard", createdAt)
	if hostile := browser.Evaluate[bool](page, "Boolean(window.hostile || document.querySelector('main img, main b'))"); hostile {
		t.Error("a text of the cluster became a part of the page")
	}
	for _, part := range []string{"analysis", "report", "check"} {
		page.ClickUntil(fmt.Sprintf(`a[href$="/%s"]`, part), fmt.Sprintf("location.pathname.endsWith('/%s') && document.querySelector('main h1')", part))
		if part == "check" {
			page.WaitUntil("document.querySelector('#run-check')")
			page.ClickUntil("#run-check", "document.body.innerText.includes('Kubernetes v')")
		}
		page.Check(part)
	}
	page.ClickUntil(`a[href="/setup"]`, "location.pathname === '/setup'")
	page.WaitForText("Kubernetes v")
	page.WaitForText("1 in progress, 0 waiting.")
	page.Check("setup")
	page.ClickUntil(`a.brand`, "document.querySelector('a.row')")
	page.ClickUntil(`a.row`, "document.querySelector('#action-Abort:enabled')")

	page.ClickUntil("#action-Abort", "document.querySelector('dialog[open]')")
	if enabled := browser.Evaluate[bool](page, "Boolean(document.querySelector('dialog button[type=submit]:enabled'))"); enabled {
		t.Error("a release can be aborted without its name")
	}
	page.Check("confirm")
	page.ClickUntil("dialog button[type=button]", "!document.querySelector('dialog')")
	page.ClickUntil("#action-Promote", "document.querySelector('dialog[open]')")
	page.Type("dialog input[name=reason]", "tested by hand")
	page.ClickUntil("dialog button[type=submit]", "!document.querySelector('dialog')")
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	observedAt := time.Now()
	page.WaitForText("is idle (Healthy")
	logMeasured(t, "the end of a release on the dashboard", observedAt)
	page.WaitForText("tested by hand")
	page.Screenshot("promoted")
	if errors := page.Errors(); len(errors) > 0 {
		t.Errorf("the console of the page contains %q", errors)
	}

	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	page.WaitUntil("document.body.classList.contains('lost')")
	page.WaitForText("The data are")
	page.WaitForText("The cluster does not respond")
	page.Check("lost")
}

// TestDashboardControlsACanaryInABrowser sends every command for a Canary with the mouse, and waits for its effect in the cluster and
// on the page.
func TestDashboardControlsACanaryInABrowser(t *testing.T) {
	t.Parallel()
	const namespace = "dashboard-canary"
	page := browser.Open(t)
	s := startEnvironment(t, namespace)
	s.keepPodsReady(t)
	_, prometheus := startFakePrometheus(t, always(100))
	hooks := startReceiver(t)
	hooks.setAnswer("/sign-off", answerWith(http.StatusForbidden))
	r := s.follow("cart")
	s.apply(deploymentByHand("cart", 1) + canaryWithSignOff(prometheus, hooks.url("/sign-off")))
	r.waitForPhase("Initialized")
	page.Open(startDashboard(t, shared.Kubeconfig, namespace, // the intervals of the controller, which announces none
		"--controller-flags=-namespace="+namespace+" -mesh-provider=gatewayapi:v1 -min-analysis-interval=1s -drain-delay=1s"))
	page.WaitForText("Idle (1)")

	// send presses a button. Some commands must be confirmed with the name of the release.
	send := func(words, reason string, confirm bool) {
		t.Helper()
		button := fmt.Sprintf("[id=%q]", "action-"+strings.ReplaceAll(words, " ", "-"))
		page.WaitUntil(fmt.Sprintf("document.querySelector(%q)", button+":enabled"))
		page.ClickUntil(button, "document.querySelector('dialog[open]')")
		page.Type("dialog input[name=reason]", reason)
		if confirm {
			if enabled := browser.Evaluate[bool](page, "Boolean(document.querySelector('dialog button[type=submit]:enabled'))"); enabled {
				t.Errorf("%s can be sent without the name of the release", words)
			}
			page.Type("dialog input[name=confirmation]", "cart")
		}
		page.ClickUntil("dialog button[type=submit]", "!document.querySelector('dialog')")
		page.WaitForText(reason)
	}
	s.deployVersion("cart", "v2")
	page.WaitForText("Needs you (1)")
	page.ClickUntil("a.row", "location.pathname.startsWith('/release/')")
	page.WaitForText("confirm-promotion/sign-off")
	page.Check("canary")
	send("Approve confirm-promotion/sign-off", "the numbers are good", false)
	r.waitForPhase("Succeeded")
	page.WaitForText("is idle (Succeeded")

	s.patch(canaries, "cart", `{"spec":{"analysis":{"interval":"10m"}}}`)
	s.deployVersion("cart", "v3")
	page.WaitForText("the canary receives 30% of the traffic")
	send("Pause", "lunch", false)
	send("Resume", "back again", false)                       // the button exists while the Canary is suspended
	page.WaitUntil("document.querySelector('#action-Pause')") // and this one while it is not
	send("Abort", "checkout is slow", true)
	r.waitForPhase("Failed")
	page.WaitForText("is idle (Failed")
	send("Retry", "it was the database", false)
	r.waitForPhase("Progressing")
	page.WaitForText("the canary receives 30% of the traffic")
	send("Promote fully", "tested elsewhere", true)
	r.waitForPhase("Succeeded")
	page.WaitForText("is idle (Succeeded")
	page.Check("canary-promoted")
	if errors := page.Errors(); len(errors) > 0 {
		t.Errorf("the console of the page contains %q", errors)
	}
}

// TestDashboardOfAReaderSendsNoCommands: a user who may read everything sees everything and can press nothing. The user signs in with a
// token; the program itself has other permissions.
func TestDashboardOfAReaderSendsNoCommands(t *testing.T) {
	t.Parallel()
	const namespace = "dashboard-reader"
	page := browser.Open(t)
	s := startEnvironment(t, namespace)
	s.apply(rolloutManifest(t, "cart", 1, `{canary: {steps: [{setWeight: 50}, {pause: {}}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	s.releaseVersion("cart", "v2")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	page.Open(startDashboard(t, shared.Kubeconfig, namespace, "--auth", "token"))
	page.WaitForText("Bearer token for the API server")
	page.Check("sign-in")
	page.Type("#token", "nonsense")
	page.ClickUntil("form button", "document.body.innerText.includes('the API server does not accept the token')")
	browser.Evaluate[bool](page, "document.querySelector('#token').value = '', true")
	page.Type("#token", readerToken(t, namespace))
	page.ClickUntil("form button", "document.querySelector('a.row')")
	page.WaitForText("Needs you (1)")
	page.ClickUntil("a.row", "location.pathname.startsWith('/release/')")
	page.WaitForText("Needs patch on rollouts/status in namespace " + namespace) // to promote
	page.WaitForText("Needs patch on rollouts in namespace " + namespace)        // to pause
	page.WaitForText("pods ready")
	if enabled := browser.Evaluate[int](page, "document.querySelectorAll('.actions button:not(:disabled)').length"); enabled > 0 {
		t.Errorf("%d commands can be sent", enabled)
	}
	if all := browser.Evaluate[int](page, "document.querySelectorAll('.actions button').length"); all < 5 {
		t.Errorf("%d commands are shown, want all", all)
	}
	page.Check("reader")
}

// readerToken returns the token of a user who may read everything and write nothing.
func readerToken(t *testing.T, namespace string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(readerKubeconfig(t, namespace))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		return user.Token
	}
	t.Fatal("the kubeconfig has no user")
	return ""
}

// createEvent creates an event about a Rollout.
func (s *environment) createEvent(about *argov1.Rollout, message string) {
	s.t.Helper()
	now := metav1.Now()
	_, err := shared.Client.CoreV1().Events(s.namespace).Create(s.t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "test-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: argov1.SchemeGroupVersion.String(), Kind: argov1.RolloutKind, Namespace: s.namespace, Name: about.Name, UID: about.UID},
		Type:           corev1.EventTypeWarning, Reason: "Test", Message: message, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}
