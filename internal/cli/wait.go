package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newWaitCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	options := goalOptions{flag: "--for"}
	cmd := &cobra.Command{
		Use: "wait [KIND] NAME...", Short: "Wait for a state of releases, for scripts", Args: asUsageErrors(cobra.MinimumNArgs(1)),
		Long: `Waits for a state of releases as watch --until does, and prints only the result. It exits as soon as:
` + goalsHelp + `
After --timeout, or when you quit before that: 3 if a release waits for user action, else 4.

` + exitCodesHelp,
		Example: "  serin wait cart --for=done --timeout 30m\n  serin wait rollout/web --for=weight=50 && ./smoke-test\n" +
			"  serin wait cart --for=gate=confirm-promotion/sign-off && serin approve cart confirm-promotion/sign-off",
		RunE: func(cmd *cobra.Command, args []string) error {
			w := &releaseWatch{}
			if options.text == "" {
				return withExitCode(ExitUsage, errors.New("--for is required: use "+goalForms))
			}
			if err := options.set(w); err != nil {
				return err
			}
			kinds, names := splitKind(args)
			session, sel, err := c.openSession(kinds, names)
			if err != nil {
				return err
			}
			w.session, w.sel = session, sel
			if err := w.runPlain(cmd.Context(), io.Discard); err != nil {
				for _, note := range w.notes() { // they may explain why nothing happens
					_, _ = fmt.Fprintln(plainErr(cmd), note)
				}
				return err
			}
			for _, r := range w.state.Releases {
				if _, err := fmt.Fprintf(plainOut(cmd), "%s/%s reached %s\n", r.Key().Kind.Resource(), r.Key().Name, options.text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.register(cmd, false)
	options.register(cmd, &c)
	return cmd
}
