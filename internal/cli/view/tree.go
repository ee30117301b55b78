package view

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// maxTreePods is the maximum number of pods of one workload in a tree. Those with problems are first, and the rest is counted.
const maxTreePods = 10

// TreeOptions are the options of a tree.
type TreeOptions struct {
	// Columns is the maximum width of a line; 0: unlimited.
	Columns int
	Paint
}

// Tree renders a release with its tree (Release.Tree): revisions, workloads, pods and analyses, and then the gates that do not
// pass, of which the first one is marked.
func Tree(r *explain.Release, now time.Time, o TreeOptions) string {
	document := printable(*r)
	r = &document
	root := node{text: o.styled(bold, string(r.Kind)+" "+r.Name) + "   " + o.styled(phaseStyle(r), stateText(r)) +
		o.styled(faint, phaseAgeText(r.Since, now)) + positionText(r)}
	if next := nextText(r, now); next != "" && r.State != release.Idle {
		root.detail = "next: " + next
	}
	if r.Tree != nil {
		for i := range r.Tree.Revisions {
			root.children = append(root.children, o.revisionNode(&r.Tree.Revisions[i], now))
		}
		for _, run := range r.Tree.AnalysisRuns {
			root.children = append(root.children, o.runNode("AnalysisRun", run))
		}
		for _, run := range r.Tree.Experiments {
			root.children = append(root.children, o.runNode("Experiment", run))
		}
		for _, unread := range r.Tree.Unread {
			root.children = append(root.children, node{text: o.styled(yellow, "! "+unread)})
		}
	}
	lines := append(o.nodeLines(root, "", ""), o.waitLines(r, now)...)
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// node is one line of a tree with the nodes below it.
type node struct {
	text string
	// detail is a message that follows the text, on lines of its own if it is longer than the rest of the line.
	detail      string
	detailStyle style
	children    []node
}

// nodeLines renders a node: first is the beginning of its line, rest that of the lines below it.
func (o TreeOptions) nodeLines(n node, first, rest string) []string {
	out := []string{first + n.text}
	switch detail := n.detail; {
	case detail == "":
	case o.Columns <= 0 || width(out[0])+3+width(detail) <= o.Columns:
		out[0] += "   " + o.styled(n.detailStyle, detail)
	default:
		indent := rest + "   "
		if len(n.children) > 0 {
			indent = rest + "│  "
		}
		for _, line := range wrapWords(detail, max(o.Columns-width(indent), 10)) {
			out = append(out, indent+o.styled(n.detailStyle, line))
		}
	}
	if o.Columns > 0 {
		out[0] = truncate(out[0], o.Columns)
	}
	for i, child := range n.children {
		if i == len(n.children)-1 {
			out = append(out, o.nodeLines(child, rest+"└─ ", rest+"   ")...)
		} else {
			out = append(out, o.nodeLines(child, rest+"├─ ", rest+"│  ")...)
		}
	}
	return out
}

func phaseAgeText(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return "   for " + ageText(since, now)
}

// positionText describes how far a release is.
func positionText(r *explain.Release) string {
	if r.State == release.Idle {
		return ""
	}
	text := ""
	switch {
	case r.TotalIterations > 0 && r.Iterations > 0:
		text = fmt.Sprintf("   iteration %d of %d", min(r.Iterations, r.TotalIterations), r.TotalIterations)
	case r.TotalSteps > 0 && r.Step > 0:
		text = fmt.Sprintf("   step %d of %d", r.Step, r.TotalSteps)
	}
	return text + failedText(r)
}

// nextText describes the next step, with its earliest time if that is in the future.
func nextText(r *explain.Release, now time.Time) string {
	if r.NextStep == "" || len(r.Steps) == 0 {
		return r.NextStep
	}
	if remaining := r.Steps[0].At.Sub(now); remaining > 0 {
		return r.NextStep + " in " + explain.FormatDuration(remaining)
	}
	return r.NextStep
}

func (o TreeOptions) revisionNode(revision *explain.TreeRevision, now time.Time) node {
	name := shortRevision(revision.Revision)
	if revision.Number > 0 {
		name = fmt.Sprintf("revision %d", revision.Number)
	}
	n := node{text: o.styled(roleStyle(revision), strings.Join(revision.Roles, ", ")), detail: revision.Reason, detailStyle: yellow}
	if revision.Missing {
		n.text += "   " + o.styled(faint, "does not exist")
	}
	for _, part := range []string{name, weightText(revision), strings.Join(revision.Images, ", ")} {
		if part != "" && part != "-" {
			n.text += "   " + part
		}
	}
	for i := range revision.Workloads {
		n.children = append(n.children, o.workloadNode(&revision.Workloads[i], now))
	}
	return n
}

func roleStyle(revision *explain.TreeRevision) style {
	for _, role := range revision.Roles {
		switch role {
		case "primary", "stable", "active":
			return green
		case "canary", "preview", "new":
			return cyan
		}
	}
	return faint
}

// weightText describes the share of requests of a revision: what the step asks for, and what the revision receives.
func weightText(revision *explain.TreeRevision) string {
	var parts []string
	if desired := revision.DesiredWeight; desired != nil {
		parts = append(parts, fmt.Sprintf("weight %d%% desired", *desired))
	}
	if served := revision.ServedWeight; served != nil {
		parts = append(parts, fmt.Sprintf("%d%% %s", *served, servedText(revision)))
	}
	if revision.Mirrored {
		parts = append(parts, "mirrored requests")
	}
	return strings.Join(parts, ", ")
}

// servedText describes how certain the share of requests is that a revision receives.
func servedText(revision *explain.TreeRevision) string {
	switch confirmed := revision.Confirmed; {
	case revision.ServedBy == explain.ByPods:
		return "of the available pods"
	case revision.ServedBy == explain.ByService:
		return "served by the active Service"
	case confirmed == nil:
		return "in the route"
	case *confirmed:
		return "served (confirmed by the router)"
	default:
		return "in the route (not confirmed by the router)"
	}
}

func (o TreeOptions) workloadNode(w *explain.TreeWorkload, now time.Time) node {
	count := o.styled(yellow, fmt.Sprintf("%d/%d ready", w.Ready, w.Desired))
	if w.Ready == w.Desired {
		count = fmt.Sprintf("%d/%d ready", w.Ready, w.Desired)
	}
	n := node{text: w.Kind + " " + w.Name + "   " + count, detail: w.Failure, detailStyle: red}
	if remaining := w.ScaleDownAt.Sub(now); remaining > 0 {
		n.text += "   " + o.styled(faint, "scaled down in "+explain.FormatDuration(remaining))
	}
	for i := range w.ReplicaSets {
		n.children = append(n.children, o.workloadNode(&w.ReplicaSets[i], now))
	}
	n.children = append(n.children, o.podNodes(w.Pods, now)...)
	return n
}

// podNodes renders the first pods, in columns, and the number of the others.
func (o TreeOptions) podNodes(pods []explain.TreePod, now time.Time) []node {
	shown := pods[:min(len(pods), maxTreePods)]
	rows := make([][]string, 0, len(shown))
	for i := range shown {
		p := &shown[i]
		symbol, symbolStyle, state := podState(p)
		rows = append(rows, []string{
			o.styled(symbolStyle, symbol) + " " + "Pod " + p.Name, restartsText(p.Restarts), ageText(p.Created, now), o.styled(symbolStyle, state),
		})
	}
	var out []node
	if len(rows) > 0 {
		for i, line := range strings.Split(strings.TrimSuffix(align(rows), "\n"), "\n") {
			out = append(out, node{text: line, detail: problemText(&shown[i]), detailStyle: red})
		}
	}
	if rest := pods[len(shown):]; len(rest) > 0 {
		out = append(out, node{text: o.styled(faint, restText(rest))})
	}
	return out
}

func restartsText(restarts int32) string {
	if restarts == 1 {
		return "1 restart"
	}
	return fmt.Sprintf("%d restarts", restarts)
}

// podState describes the state of a pod in words, with a symbol.
func podState(p *explain.TreePod) (symbol string, s style, state string) {
	switch {
	case p.Deleting:
		return "…", faint, "terminating"
	case p.Reason != "":
		return "✗", red, p.Reason
	case p.Ready:
		return "✓", green, "ready"
	case p.Phase == "Running":
		return "…", yellow, "running, not ready"
	default:
		return "…", yellow, cmp.Or(strings.ToLower(p.Phase), "pending")
	}
}

// problemText describes where a problem occurred, with the message of Kubernetes; empty: there is none.
func problemText(p *explain.TreePod) string {
	if p.Reason == "" || p.Deleting {
		return ""
	}
	var parts []string
	switch {
	case p.Container != "" && p.Image != "":
		parts = append(parts, "container "+p.Container+" (image "+p.Image+")")
	case p.Container != "":
		parts = append(parts, "container "+p.Container)
	}
	if p.Message != "" {
		parts = append(parts, p.Message)
	}
	return strings.Join(parts, ": ")
}

// restText counts the pods that are not shown.
func restText(pods []explain.TreePod) string {
	ready := 0
	for i := range pods {
		if pods[i].Ready && !pods[i].Deleting {
			ready++
		}
	}
	if ready == len(pods) {
		return fmt.Sprintf("and %d more, all ready", len(pods))
	}
	return fmt.Sprintf("and %d more, %d of them ready", len(pods), ready)
}

func (o TreeOptions) runNode(kind string, run explain.TreeRun) node {
	n := node{text: kind + " " + run.Name, detail: run.Message}
	if run.Type != "" {
		n.text += "   " + run.Type
	}
	n.text += "   " + o.styled(analysisStyle(run.Phase), cmp.Or(run.Phase, "Pending"))
	if run.Measurements != nil {
		n.text += "   " + run.Measurements.Text()
	}
	return n
}

// analysisStyle returns the style for the phase of an AnalysisRun or an Experiment.
func analysisStyle(phase string) style {
	switch phase {
	case "Failed", "Error":
		return red
	case "Running":
		return cyan
	case "Successful":
		return green
	default:
		return yellow
	}
}

// waitLines renders the gates that do not pass, those that the user opens first, as in the explanation of why a release waits.
func (o TreeOptions) waitLines(r *explain.Release, now time.Time) []string {
	var gates []*explain.Gate
	nameWidth := 0
	for _, byUser := range []bool{true, false} {
		for i := range r.Gates {
			if g := &r.Gates[i]; g.Verdict != "pass" && byUser == (g.Opener == "person") {
				gates = append(gates, g)
				nameWidth = max(nameWidth, width(g.Name))
			}
		}
	}
	if len(gates) == 0 {
		return nil
	}
	lines := []string{"", "Waits for:"}
	for i, g := range gates {
		symbol, s := verdictSymbol(g.Verdict)
		mark := "  "
		if i == 0 {
			mark = o.styled(bold, "→ ")
		}
		text := gateText(g, now)
		if !g.Since.IsZero() {
			text += " (for " + ageText(g.Since, now) + ")"
		}
		prefix := mark + o.styled(s, symbol) + " " + pad(g.Name, nameWidth) + "   "
		if o.Columns <= 0 {
			lines = append(lines, prefix+text)
		} else {
			lines = append(lines, Screen{Width: o.Columns, Paint: o.Paint}.wrapAfter(prefix, plain, text)...)
		}
		if g.UserAction != "" {
			lines = append(lines, "      "+o.styled(yellow, g.UserAction))
		}
	}
	return lines
}
