package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// The documents of the API. Fields are added to them, never renamed or removed. Times are in UTC.

// Fleet is all selected releases, or those that changed.
type Fleet struct {
	Status

	// Complete is true if Releases contains all releases; else it contains those that changed, and Removed those that were deleted.
	Complete bool                   `json:"complete"`
	Releases []explain.FleetRelease `json:"releases"`
	Removed  []ReleaseKey           `json:"removed,omitempty"`
}

// ReleaseKey identifies a release.
type ReleaseKey struct {
	Kind      explain.Kind `json:"kind"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
}

// Status is what is known about the cluster.
type Status struct {
	// Controller reports whether a controller acts on the releases.
	Controller explain.Controller `json:"controller"`
	// Notes are sentences about what is missing in the data, or may be outdated.
	Notes []string `json:"notes,omitempty"`
	// Lost is true while the cluster does not respond. The data are those of the time Observed.
	Lost     bool      `json:"lost"`
	Observed time.Time `json:"observed,omitzero"`
	// Now is the time of the server, by which the browser computes countdowns.
	Now time.Time `json:"now"`
	// Summary counts the releases of each group.
	Summary explain.Summary `json:"summary"`
}

// Detail is one release.
type Detail struct {
	explain.Explanation

	// Status is what is known about the cluster. Its controller is also that of the explanation.
	Status Status               `json:"status"`
	Fleet  explain.FleetRelease `json:"fleet"`
	// Actions are the commands that the viewer may send.
	Actions []Action `json:"actions"`
	// Weights are the shares of requests since the release began, or since it was first observed.
	Weights []explain.WeightPoint `json:"weights,omitempty"`
	// Measurements are the values of its checks.
	Measurements []explain.Series `json:"measurements,omitempty"`
	// History are the releases that the cluster retains, newest first.
	History []explain.PastRelease `json:"history"`
	// Gone is true if the release was deleted.
	Gone bool `json:"gone,omitempty"`
}

// Action is a command for a release.
type Action struct {
	// Verb is the verb of the command, as in serin VERB NAME. Full and Gate are its arguments.
	Verb string `json:"verb"`
	Full bool   `json:"full,omitempty"`
	Gate string `json:"gate,omitempty"`
	// Effect is the consequence, in a sentence without a full stop; empty if the command is refused.
	Effect string `json:"effect,omitempty"`
	// Refused is the reason why the command has no effect now.
	Refused string `json:"refused,omitempty"`
	// Needs are the permissions that the command requires, such as: patch on canaries in namespace shop.
	Needs []string `json:"needs"`
	// Confirm is true if the viewer must confirm the command by the name of the release.
	Confirm bool `json:"confirm,omitempty"`
	// Run identifies what the command is for. An order with another value is refused.
	Run string `json:"run,omitempty"`
}

// Order is the request to send a command.
type Order struct {
	Verb string `json:"verb"`
	Full bool   `json:"full"`
	Gate string `json:"gate"`
	// Run is that of the Action that the viewer chose.
	Run string `json:"run"`
	// Reason is recorded with the command.
	Reason string `json:"reason"`
}

// OrderResult is the response to an order that was sent.
type OrderResult struct {
	Effect   string   `json:"effect"`
	Warnings []string `json:"warnings,omitempty"`
}

// QueueUpdate is the queue of releases with what is known about the cluster.
type QueueUpdate struct {
	Status
	explain.Queue
}

// Controllers are the installations of Serin in the cluster.
type Controllers struct {
	Controllers []ControllerInstallation `json:"controllers"`
	// Unread are the kinds of objects that the viewer has no permission to read, so that an installation may be missing.
	Unread []string `json:"unread,omitempty"`
}

// ControllerInstallation is one installation of Serin.
type ControllerInstallation struct {
	// Source is the object that shows it, such as: Deployment serin.serin-system. Image is empty if the object is a Lease.
	Source string `json:"source"`
	Image  string `json:"image,omitempty"`
	Ready  int32  `json:"ready,omitempty"`
	// Flags differ from their defaults. The value of a flag that may contain a secret is not shown.
	Flags []string `json:"flags"`
	// Limit is the maximum number of releases in progress, and NamespaceLimit that of each namespace; 0: no limit.
	Limit          int `json:"limit"`
	NamespaceLimit int `json:"namespaceLimit"`
}

// Permission reports whether the viewer may control a release.
type Permission struct {
	// Allowed is true if the viewer has permission for all commands.
	Allowed bool `json:"allowed"`
	// Missing are the permissions that the viewer lacks, such as: patch on canaries in namespace shop. They are some of those that the
	// actions need.
	Missing []string `json:"missing,omitempty"`
}

// Problem is the response to a request that failed.
type Problem struct {
	// Error is a message for the viewer: what is wrong, and what to do.
	Error string `json:"error"`
}

// commands are the commands for releases, in the order in which they are shown.
var commands = []struct {
	command cluster.Command
	verb    string
	full    bool
}{
	{cluster.Promote, "promote", false},
	{cluster.PromoteFull, "promote", true},
	{cluster.Abort, "abort", false},
	{cluster.Pause, "pause", false},
	{cluster.Resume, "resume", false},
	{cluster.Retry, "retry", false},
}

// answers are the commands that answer a gate.
var answers = []struct {
	command cluster.Command
	verb    string
}{{cluster.Promote, "approve"}, {cluster.Abort, "deny"}}

// actionsFor returns the commands for an observed release with their consequences.
func actionsFor(observed explain.Observation, r *explain.Release) []Action {
	var out []Action
	for _, gate := range r.Gates {
		if !gate.AwaitsApproval() || r.Kind == explain.KindRollout { // promote and abort of a Rollout answer its only gate
			continue
		}
		for _, answer := range answers {
			action := planAction(answer.command, answer.verb, observed)
			action.Gate = gate.Name
			out = append(out, action)
		}
	}
	for _, c := range commands {
		if (c.command == cluster.Pause) == r.Suspended && (c.command == cluster.Pause || c.command == cluster.Resume) {
			continue // one of the two applies
		}
		action := planAction(c.command, c.verb, observed)
		action.Full = c.full
		out = append(out, action)
	}
	if r.Kind == explain.KindRollout {
		out = append(out, Action{Verb: "undo", Effect: "returns to the template of the previous revision, as a new release", Needs: needsOf(cluster.Undo, observed), Confirm: true, Run: cluster.UndoSubject(observed)})
	}
	return append(out, Action{Verb: "restart", Effect: restartEffect(r.Kind), Needs: needsOf(cluster.Restart, observed), Confirm: true})
}

// permissionsFor returns what the commands for an observed release require.
func permissionsFor(observed explain.Observation) []cluster.Permission {
	all := cluster.PermissionsFor(cluster.Restart, observed)
	for _, c := range commands {
		all = append(all, cluster.PermissionsFor(c.command, observed)...)
	}
	if observed.Key().Kind == explain.KindRollout {
		all = append(all, cluster.PermissionsFor(cluster.Undo, observed)...)
	}
	return all
}

func needsOf(command cluster.Command, observed explain.Observation) []string {
	var out []string
	for _, permission := range cluster.PermissionsFor(command, observed) {
		out = append(out, permission.String())
	}
	return out
}

func restartEffect(kind explain.Kind) string {
	if kind == explain.KindRollout {
		return "replaces all pods, a few at a time"
	}
	return "releases the same version with new pods"
}

// planAction describes a command for a release in its observed state.
func planAction(command cluster.Command, verb string, observed explain.Observation) Action {
	key := observed.Key()
	planned, err := cluster.PlanObserved(command, observed)
	if err != nil {
		return Action{Verb: verb, Refused: refusal(err, key), Needs: needsOf(command, observed)}
	}
	action := Action{Verb: verb, Needs: needsOf(command, observed), Effect: cmp.Or(planned.Skips, consequences[command], "the "+string(key.Kind)+" "+planned.Effect), Run: planned.Subject(), Confirm: planned.Skips != "" || command == cluster.Abort}
	if planned.Paused {
		action.Effect += ", after it is resumed"
	}
	return action
}

// consequences describe commands whose effect does not depend on the state of the release.
var consequences = map[cluster.Command]string{
	cluster.Abort:  "routes all requests to the previous version and ends the release as failed",
	cluster.Pause:  "freezes the release and its traffic until it is resumed",
	cluster.Resume: "continues the release",
	cluster.Retry:  "releases the failed version again, unchanged",
}

// refusal returns the reason in the error of a command that is not sent, without the name of the release, which the page shows.
func refusal(err error, key explain.Key) string {
	text := err.Error()
	for _, kind := range []error{cluster.ErrNoEffect, cluster.ErrRefused} {
		if errors.Is(err, kind) {
			text = strings.TrimPrefix(text, kind.Error()+": ")
		}
	}
	if rest, ok := strings.CutPrefix(text, fmt.Sprintf("%s %s in namespace %s ", key.Kind, key.Name, key.Namespace)); ok {
		return "the " + string(key.Kind) + " " + rest
	}
	return text
}
