package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/release"
)

// alertProviderWords are the words for the kind AlertProvider, in arguments.
var alertProviderWords = []string{"alertprovider", "alertproviders", "alertprovider.flagger.app", "alertproviders.flagger.app"}

func newNotifyCommand(connect connector) *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify", Short: "Test alerts and notifications", Args: asUsageErrors(cobra.NoArgs),
		Long: "Tests the delivery of alerts of Canaries and of notifications about Rollouts.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNotifyTestCommand(connect))
	return cmd
}

// notifyFlags are the flags of notify test.
type notifyFlags struct {
	trigger, to, severity, controllerNamespace string
	dryRun                                     bool
}

func newNotifyTestCommand(connect connector) *cobra.Command {
	c, f := commonFlags{connect: connect}, notifyFlags{}
	cmd := &cobra.Command{
		Use: "test KIND/NAME", Short: "Send a test message", Args: asUsageErrors(cobra.ExactArgs(1)),
		Long: `Sends one test message, from this machine and with your permissions:

- alertprovider/NAME: an alert, as a Canary that references the AlertProvider sends it.
- rollout/NAME, analysisrun/NAME or experiment/NAME: the messages of --trigger about the object, to the recipients that are
  subscribed to it, or to --to. Conditions of the trigger are ignored, and no message is recorded as sent.

Requires permission to read the AlertProvider or the ConfigMap of notifications, and the Secret with the credentials. The
controller may be unable to reach an address that this machine reaches, and the other way round. A service without credentials
of its own uses your identity in the cloud in place of that of the controller.

Exit codes: 0 all messages were accepted, 2 usage error, 5 not found, 6 cluster unreachable or access denied, 7 a message was not
accepted.`,
		Example: "  serin notify test alertprovider/on-call -n shop --severity error\n" +
			"  serin notify test rollout/cart --trigger on-rollout-completed --dry-run\n" +
			"  serin notify test rollout/cart --trigger on-rollout-completed --to slack:releases",
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, &c, args) },
	}
	c.register(cmd, false)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringVar(&f.trigger, "trigger", "", "trigger whose messages are sent, such as on-rollout-completed")
	cmd.Flags().StringVar(&f.to, "to", "", "SERVICE:RECIPIENT in place of the subscribed recipients")
	cmd.Flags().StringVar(&f.controllerNamespace, "controller-namespace", "", "namespace of the configuration of notifications; default: that of the Deployment of the controller")
	cmd.Flags().StringVar(&f.severity, "severity", string(release.Info), "severity of an alert: info, warn or error")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the messages of a trigger, and send none")
	completeFlag(cmd, "severity", completeWords([]string{string(release.Info), string(release.Warn), string(release.Error)}))
	return cmd
}

// run sends the messages and prints the result.
func (f notifyFlags) run(cmd *cobra.Command, c *commonFlags, args []string) error {
	word, name, _ := strings.Cut(args[0], "/")
	isAlert := slices.Contains(alertProviderWords, strings.ToLower(word))
	of, err := parseSubject(args)
	if isAlert && name != "" {
		err = f.validateAlert()
	} else if err == nil && f.trigger == "" {
		err = errors.New("--trigger is missing: name the trigger whose messages are sent, such as on-rollout-completed")
	}
	if err != nil {
		return withExitCode(ExitUsage, err)
	}
	session, sel, err := c.openSession(nil, nil)
	if err != nil {
		return err
	}
	var messages []cluster.Message
	if isAlert {
		message, err := session.SendTestAlert(cmd.Context(), sel.Namespace, name, release.Severity(f.severity))
		if err != nil {
			return err
		}
		messages = []cluster.Message{message}
	} else {
		service, recipient, _ := strings.Cut(f.to, ":")
		messages, err = session.SendTestNotifications(cmd.Context(), cluster.NotificationTest{
			Namespace: sel.Namespace, Name: of, Trigger: f.trigger, To: notification.Destination{Service: service, Recipient: recipient},
			ControllerNamespace: f.controllerNamespace, DryRun: f.dryRun,
		})
		if err != nil {
			return err
		}
	}
	return printMessages(cmd, messages, f.dryRun)
}

// validateAlert checks the flags for an AlertProvider.
func (f notifyFlags) validateAlert() error {
	switch {
	case f.trigger != "" || f.to != "" || f.dryRun || f.controllerNamespace != "":
		return errors.New("--trigger, --to, --controller-namespace and --dry-run are for notifications: an AlertProvider has one recipient, and no triggers")
	case !slices.Contains([]release.Severity{release.Info, release.Warn, release.Error}, release.Severity(f.severity)):
		return fmt.Errorf("--severity %q is invalid: use info, warn or error", f.severity)
	default:
		return nil
	}
}

// parseSubject parses the name of an object that notifications are about.
func parseSubject(args []string) (cluster.Name, error) {
	if name, err := parseAnalysisName(args); err == nil && name.Kind != "" {
		return name, nil
	}
	name, err := parseName(args[0])
	switch {
	case err == nil && name.Kind == explain.KindRollout:
		return name, nil
	case err == nil && name.Kind == explain.KindCanary:
		return cluster.Name{}, errors.New("a Canary sends alerts through its AlertProviders: use alertprovider/NAME")
	}
	return cluster.Name{}, fmt.Errorf("%q is not an object with messages: use alertprovider/NAME, rollout/NAME, analysisrun/NAME or experiment/NAME", args[0])
}

// printMessages prints the result of each message, and returns an error if one was not accepted.
func printMessages(cmd *cobra.Command, messages []cluster.Message, dryRun bool) error {
	out, failed := plainWriter{cmd.OutOrStdout()}, 0
	for _, m := range messages {
		switch {
		case m.Err != nil:
			failed++
			_, _ = fmt.Fprintf(out, "✗ %s: %v\n", m.To, m.Err)
		case dryRun:
			_, _ = fmt.Fprintf(out, "  %s: not sent (dry run)\n", m.To)
		default:
			_, _ = fmt.Fprintf(out, "✓ %s: accepted\n", m.To)
		}
		for line := range strings.SplitSeq(strings.TrimSpace(m.Text), "\n") {
			if line != "" {
				_, _ = fmt.Fprintf(out, "    %s\n", line)
			}
		}
	}
	if failed > 0 {
		return withExitCode(ExitCheck, fmt.Errorf("messages not accepted: %d of %d", failed, len(messages)))
	}
	return nil
}
