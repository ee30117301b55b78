package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/dispatch"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Message is a test message to one recipient.
type Message struct {
	To, Text string
	// Err is the reason why it could not be sent. It contains no credentials.
	Err error
}

// messagePolicy is that of requests of the user's own machine.
var messagePolicy = outbound.Policy{AllowLoopback: true}

// SendTestAlert sends one alert through an AlertProvider.
func (s *Session) SendTestAlert(ctx context.Context, namespace, name string, severity release.Severity) (Message, error) {
	provider := &flaggerv1.AlertProvider{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, provider)
	if apierrors.IsNotFound(err) {
		return Message{}, failure{ErrNotFound, err, fmt.Sprintf("there is no AlertProvider %s%s: list all with: kubectl get alertproviders -n %s", name, inNamespace(namespace), namespace)}
	}
	if err != nil {
		return Message{}, describeError("get AlertProvider "+name+inNamespace(namespace), err, explain.KindCanary)
	}
	message := alerting.Message{
		Canary: name + "." + namespace, Text: "This is a test alert of serin notify.", Severity: severity, At: s.Clock.Now(),
		Fields: []alerting.Field{{Name: "Severity", Value: string(severity)}},
	}
	out := Message{To: provider.Spec.Type, Text: message.Text}
	if provider.Spec.Channel != "" {
		out.To += ":" + provider.Spec.Channel
	}
	httpClient := outbound.New(messagePolicy)
	defer httpClient.Close()
	readers := controller.AlertReaders{Providers: s.Client, Secrets: s.Client}
	sender, err := controller.ReadAlertSender(ctx, readers, client.ObjectKeyFromObject(provider), alerting.NewSenders(httpClient, messagePolicy).New)
	if isForbidden(err) {
		return Message{}, failure{ErrUnreachable, err, noPermission("read the Secret of AlertProvider " + name + inNamespace(namespace))}
	}
	if err == nil {
		err = sender.Send(ctx, message)
	}
	out.Err = err
	return out, nil
}

// NotificationTest is a request for the messages of a trigger about an object.
type NotificationTest struct {
	Namespace string
	Name      Name
	Trigger   string
	// To is the recipient; the zero value: those that are subscribed.
	To notification.Destination
	// ControllerNamespace contains the configuration; empty: the namespace of the controller that was found.
	ControllerNamespace string
	// DryRun renders the messages and sends none.
	DryRun bool
}

// SendTestNotifications sends the messages of a trigger about a Rollout, an AnalysisRun or an Experiment, with the configuration
// that the controller uses. It records no message as sent.
func (s *Session) SendTestNotifications(ctx context.Context, request NotificationTest) ([]Message, error) {
	about, err := s.subjectOf(ctx, request.Namespace, request.Name)
	if err != nil {
		return nil, err
	}
	f := s.findControllers(ctx, []client.Object{about.Object}).flags
	controllers := cmp.Or(request.ControllerNamespace, f.Argo.OwnNamespace)
	if controllers == "" {
		return nil, failure{ErrRefused, nil, "the namespace of the controller, which contains the configuration, is not known: name it with --controller-namespace"}
	}
	namespaces := []string{controllers}
	if f.Argo.SelfServiceNotification && request.Namespace != controllers {
		namespaces = append(namespaces, request.Namespace)
	}
	trial := dispatch.Trial{About: about, Trigger: request.Trigger, Now: s.Clock.Now(), Policy: messagePolicy}
	if request.To.Service != "" {
		trial.To = []notification.Destination{request.To}
	}
	if !request.DryRun {
		trial.Client = outbound.New(messagePolicy)
		defer trial.Client.Close()
	}
	var out []Message
	var failures []error
	for _, namespace := range namespaces {
		trial.Config, err = s.notificationConfig(ctx, namespace, namespace != controllers)
		if err != nil {
			return nil, err
		}
		if trial.Config == nil {
			failures = append(failures, fmt.Errorf("ConfigMap %s does not exist in namespace %s: create it there, or correct --controller-namespace", notification.ConfigMapName, namespace))
			continue
		}
		results, err := dispatch.Try(ctx, trial)
		if err != nil {
			failures = append(failures, err)
		}
		for _, one := range results {
			out = append(out, Message{To: one.To.String(), Text: one.Message, Err: one.Err})
		}
	}
	if len(out) == 0 {
		return nil, failure{ErrRefused, nil, errors.Join(failures...).Error()}
	}
	return out, nil
}

// subjectOf reads an object that notifications can be about.
func (s *Session) subjectOf(ctx context.Context, namespace string, name Name) (dispatch.About, error) {
	if name.Kind == explain.KindAnalysisRun || name.Kind == explain.KindExperiment {
		object, _, err := s.getAnalysis(ctx, namespace, name)
		return dispatch.About{Object: object}, err
	}
	rollout := &argov1.Rollout{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.Name}, rollout)
	if apierrors.IsNotFound(err) {
		return dispatch.About{}, s.notFoundError(ctx, namespace, name, err)
	}
	if err != nil {
		return dispatch.About{}, describeError("get Rollout "+name.Name+inNamespace(namespace), err, explain.KindRollout)
	}
	return dispatch.About{Object: rollout, Runs: func(ctx context.Context) ([]argov1.AnalysisRun, error) {
		runs := &argov1.AnalysisRunList{}
		err := s.Client.List(ctx, runs, client.InNamespace(namespace), client.MatchingLabels{argov1.PodTemplateHashLabel: rollout.Status.CurrentPodHash})
		return runs.Items, err
	}}, nil
}

// notificationConfig reads the configuration of notifications of a namespace; nil: it has none.
func (s *Session) notificationConfig(ctx context.Context, namespace string, own bool) (*notification.Config, error) {
	texts, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: notification.ConfigMapName}, texts)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err == nil {
		err = client.IgnoreNotFound(s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: notification.SecretName}, secret))
	}
	if err != nil {
		return nil, describeError("read the configuration of notifications"+inNamespace(namespace), err, explain.KindRollout)
	}
	config := notification.NewConfig(texts.Data, secret.Data)
	if own {
		config = config.ForNamespace(namespace)
	}
	return config, nil
}
