package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// completionTimeout limits the requests of a completion. A shell that hangs is worse than a missing completion.
const completionTimeout = 2 * time.Second

// completeFlag registers the completion of the values of a flag.
func completeFlag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the command has no such flag
	}
}

// completeWords completes one of some words. A word that ends with an equal sign is continued by the user.
func completeWords(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found := slices.DeleteFunc(slices.Clone(words), func(word string) bool { return !strings.HasPrefix(word, toComplete) })
		if len(found) == 1 && strings.HasSuffix(found[0], "=") {
			return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes the names of releases, with kind and phase as their description. many is true for a command that accepts
// several names.
func (c *commonFlags) completeNames(many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		kinds, names := splitKind(args)
		if c.allNamespaces || c.selector != "" || len(names) > 0 && !many {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		word, _, hasKind := strings.Cut(toComplete, "/")
		if hasKind {
			name, err := parseName(word + "/x")
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			kinds = []explain.Kind{name.Kind}
		}
		found := askCluster(cmd.Context(), c, func(ctx context.Context, session *cluster.Session, namespace string) ([]cluster.ReleaseName, error) {
			return session.ReleaseNames(ctx, cluster.Selection{Namespace: namespace, Kinds: kinds})
		})
		var out []cobra.Completion
		for _, one := range found {
			text := one.Key.Name
			switch {
			case hasKind:
				text = word + "/" + text
			case slices.ContainsFunc(found, func(other cluster.ReleaseName) bool { return other.Key.Name == one.Key.Name && other.Key != one.Key }):
				text = strings.ToLower(string(one.Key.Kind)) + "/" + text
			}
			if !slices.Contains(names, text) && strings.HasPrefix(text, toComplete) {
				out = append(out, cobra.CompletionWithDesc(text, strings.TrimSpace(string(one.Key.Kind)+" "+one.Phase)))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeGoals completes a goal, and after gate= the gates of the release that the arguments name.
func (c *commonFlags) completeGoals(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	kinds, names := splitKind(args)
	if !strings.HasPrefix(toComplete, gateGoalPrefix) || len(names) != 1 {
		return completeWords(goalWords)(cmd, args, toComplete)
	}
	name, err := parseName(names[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if len(kinds) > 0 {
		name.Kind = kinds[0]
	}
	gates := askCluster(cmd.Context(), c, func(ctx context.Context, session *cluster.Session, namespace string) ([]string, error) {
		return session.PlannedGates(ctx, namespace, name)
	})
	for i := range gates {
		gates[i] = gateGoalPrefix + gates[i]
	}
	return slices.DeleteFunc(gates, func(gate string) bool { return !strings.HasPrefix(gate, toComplete) }), cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes the names of namespaces.
func (c *commonFlags) completeNamespaces(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	found := askCluster(cmd.Context(), c, func(ctx context.Context, session *cluster.Session, _ string) ([]string, error) {
		return session.Namespaces(ctx)
	})
	return slices.DeleteFunc(found, func(name string) bool { return !strings.HasPrefix(name, toComplete) }), cobra.ShellCompDirectiveNoFileComp
}

// completeContexts completes the contexts of the kubeconfig files.
func (c *commonFlags) completeContexts(_ *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := c.connection.rules().Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := slices.Sorted(maps.Keys(config.Contexts))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, toComplete) }), cobra.ShellCompDirectiveNoFileComp
}

// askCluster returns the result of a request with a short timeout. It returns nothing if the request fails, because a completion
// cannot report errors.
func askCluster[T any](ctx context.Context, c *commonFlags, request func(ctx context.Context, session *cluster.Session, namespace string) ([]T, error)) []T {
	if timeout := c.connection.overrides.Timeout; timeout == "" || timeout == "0" {
		c.connection.overrides.Timeout = completionTimeout.String() // also limits the discovery of kinds
	}
	session, namespace, err := c.connect(&c.connection, nil)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	found, err := request(ctx, session, namespace)
	if err != nil {
		return nil
	}
	return found
}
