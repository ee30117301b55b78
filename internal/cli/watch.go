package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/view"
	"github.com/serin-dev/serin/internal/release"
)

// goal is the state that a watch waits for.
type goal string

// The goals. Without one, a watch continues until the user quits.
const (
	untilQuit     goal = ""
	untilPromoted goal = "promoted"
	untilFailed   goal = "failed"
	untilIdle     goal = "rest"
	untilDone     goal = "done"
)

func watchCommand(connect connector) *cobra.Command {
	c := common{connect: connect}
	until, timeout, asLines := "", time.Duration(0), false
	cmd := &cobra.Command{
		Use: "watch [KIND] [NAME...]", Short: "Follow releases live", Args: checked(cobra.ArbitraryArgs),
		Long: `Shows releases live: phase, weights, the observation window with the time to the next step, checks with value, limit and
verdict, every gate, and events. On a terminal it opens a full-screen view; otherwise, or with --plain, it prints one line
for each change. It watches the cluster, and reconnects when the cluster becomes unreachable.

With --until it exits as soon as:
  promoted  all releases are idle and promoted: 0; one failed: 1
  failed    all releases are idle and failed: 0
  rest      all releases are idle, regardless of the result: 0
  done      all releases are idle: 0 if all were promoted, 1 if one failed
After --timeout, or when you quit before that: 3 if a release waits for user action, else 4.

` + codes,
		Example: "  serin watch\n  serin watch cart\n  serin watch cart --until done --timeout 30m --plain",
		RunE: func(cmd *cobra.Command, args []string) error {
			w := &watching{goal: goal(until), timeout: timeout}
			switch {
			case !slices.Contains([]goal{untilQuit, untilPromoted, untilFailed, untilIdle, untilDone}, w.goal):
				return exit(ExitUsage, fmt.Errorf("--until %q is invalid: use promoted, failed, rest or done", until))
			case timeout < 0:
				return exit(ExitUsage, fmt.Errorf("--timeout %s is negative: use a duration such as 30m", timeout))
			case timeout > 0 && w.goal == untilQuit:
				return exit(ExitUsage, errors.New("--timeout requires --until"))
			}
			kinds, names := kindsOf(args)
			session, sel, err := c.open(kinds, names)
			if err != nil {
				return err
			}
			w.session, w.sel = session, sel
			in, out := cmd.InOrStdin(), cmd.OutOrStdout()
			if _, screen := screenOf(out); screen && !asLines && os.Getenv("TERM") != "dumb" && isTerminal(in) {
				return w.live(cmd.Context(), in, out)
			}
			return w.plain(cmd.Context(), out)
		},
	}
	c.register(cmd, true)
	cmd.Flags().StringVar(&until, "until", "", "exit when the releases are promoted, failed, idle (rest), or done")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "maximum duration of --until, such as 30m; 0: unlimited")
	cmd.Flags().BoolVar(&asLines, "plain", false, "print lines, even on a terminal")
	return cmd
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// watching is one watch: the observed state, and the condition that ends it.
type watching struct {
	session *cluster.Session
	sel     cluster.Selection
	goal    goal
	timeout time.Duration

	state cluster.State
	known bool
	began time.Time
	// described are the last descriptions.
	described map[explain.Key]described
}

// described is the description of a release, what it was made from, and the time until which it is valid.
type described struct {
	version  explain.Version
	events   []explain.Event
	until    time.Time
	document explain.Release
}

// releases describes all releases at that time, because time alone opens gates. Descriptions are reused while they are valid, so
// that a screen of a thousand releases costs little.
func (w *watching) releases(now time.Time) []explain.Release {
	out := make([]explain.Release, 0, len(w.state.Releases))
	current := make(map[explain.Key]described, len(w.state.Releases))
	for _, seen := range w.state.Releases {
		key, version, events := seen.Key(), seen.Version(), seen.SharedContext().Events
		old, ok := w.described[key]
		if !ok || old.version != version || !slices.Equal(old.events, events) || !now.Before(old.until) {
			document := seen.Describe(now)
			old = described{version: version, events: events, until: validUntil(&document, now), document: document}
		}
		current[key] = old
		out = append(out, old.document)
	}
	w.described = current
	return out
}

// validUntil is when time alone changes a description.
func validUntil(r *explain.Release, now time.Time) time.Time {
	first := r.ClosedGate()
	if r.State == release.Idle && first == nil {
		return now.Add(time.Hour)
	}
	if first == nil || first.Opener != string(release.ByTime) || !first.Until.After(now) {
		return now // the forecast starts at the current time
	}
	until := first.Until
	for _, gate := range r.Gates {
		if gate.Until.After(now) && gate.Until.Before(until) {
			until = gate.Until
		}
	}
	return until
}

// notes are what the user must know first.
func (w *watching) notes() []string {
	var out []string
	if note := w.state.Controller.Note(); note != "" && len(w.state.Releases) > 0 {
		out = append(out, note)
	}
	return append(out, w.state.Lost...)
}

// end reports whether the watch is over, and its error.
func (w *watching) end(releases []explain.Release, now time.Time) (bool, error) {
	if !w.known || w.goal == untilQuit {
		return false, nil
	}
	if len(releases) < max(len(w.sel.Names), 1) {
		return true, exit(ExitNotFound, errors.New("a release that was waited for was deleted"))
	}
	if reached, err := reaches(w.goal, releases); reached {
		return true, err
	}
	if w.timeout > 0 && now.Sub(w.began) >= w.timeout {
		return true, w.unfinished(releases, fmt.Sprintf("--until %s was not reached after %s", w.goal, w.timeout))
	}
	return false, nil
}

// reaches reports whether the releases have reached the goal.
func reaches(g goal, releases []explain.Release) (bool, error) {
	var failed *explain.Release
	for i := range releases {
		r := &releases[i]
		if r.State != release.Idle {
			return false, nil
		}
		if r.Result == release.RolledBack {
			failed = cmp.Or(failed, r)
		} else if g == untilFailed {
			return false, nil
		}
	}
	if failed != nil && (g == untilPromoted || g == untilDone) {
		return true, exit(ExitFailed, fmt.Errorf("the release of %s failed", failed.FullName()))
	}
	return true, nil
}

// interrupted is the error of a watch that the user quits.
func (w *watching) interrupted() error {
	if w.goal == untilQuit {
		return nil
	}
	return w.unfinished(w.releases(w.session.Clock.Now()), fmt.Sprintf("--until %s was not reached before the end of the watch", w.goal))
}

// unfinished is the error of a watch that ends before its goal is reached.
func (w *watching) unfinished(releases []explain.Release, message string) error {
	for i := range releases {
		if releases[i].State == release.WaitsForUser {
			return exit(ExitPerson, fmt.Errorf("%s: %s waits for user action: see serin why %s -n %s",
				message, releases[i].FullName(), releases[i].Argument(), releases[i].Namespace))
		}
	}
	return exit(ExitTimeout, errors.New(message))
}

// plain prints a line for each change until the watch is over.
func (w *watching) plain(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	states, ended := make(chan cluster.State), make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- w.session.Follow(ctx, w.sel, func(state cluster.State) bool {
			select {
			case states <- state:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	err := w.print(ctx, out, states, ended)
	cancel()
	for range ended { // until it notices the cancellation
	}
	return err
}

func (w *watching) print(ctx context.Context, out io.Writer, states <-chan cluster.State, ended <-chan error) error {
	tick := w.session.Clock.NewTicker(time.Second)
	defer tick.Stop()
	w.began = w.session.Clock.Now()
	printed := newLines()
	for {
		select {
		case <-ctx.Done():
			return w.interrupted()
		case err := <-ended:
			if ctx.Err() != nil {
				err = w.interrupted()
			}
			return err
		case w.state = <-states:
			w.known = true
		case <-tick.C():
		}
		now := w.session.Clock.Now()
		releases := w.releases(now)
		for _, line := range printed.news(releases, w.notes(), now) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
		if isOver, err := w.end(releases, now); isOver {
			return err
		}
	}
}

// lines are the lines that were printed.
type lines struct {
	of     map[string]string
	events map[string]time.Time
	notes  []string
	begun  bool
}

func newLines() *lines {
	return &lines{of: map[string]string{}, events: map[string]time.Time{}}
}

// news are the lines that were not printed yet: notes, events in their order, then the releases that changed. Events from before
// the start of the watch are omitted.
func (l *lines) news(releases []explain.Release, notes []string, now time.Time) []string {
	var out []string
	for _, note := range notes {
		if !slices.Contains(l.notes, note) {
			out = append(out, view.Stamped(now, "note: "+note))
		}
	}
	for _, note := range l.notes {
		if !slices.Contains(notes, note) {
			out = append(out, view.Stamped(now, "note: resolved: "+note))
		}
	}
	l.notes = notes
	existing := map[string]bool{}
	for i := range releases {
		r := &releases[i]
		existing[r.FullName()] = true
		for _, event := range r.Events {
			key := r.FullName() + "\x00" + event.Message
			if printed, ok := l.events[key]; ok && !event.At.After(printed) {
				continue
			}
			l.events[key] = event.At
			if l.begun {
				out = append(out, view.Stamped(event.At, view.EventLine(r, event)))
			}
		}
		if line := view.Line(r); l.of[r.FullName()] != line {
			l.of[r.FullName()] = line
			out = append(out, view.Stamped(now, line))
		}
	}
	for name := range l.of {
		if !existing[name] {
			delete(l.of, name)
			out = append(out, view.Stamped(now, name+" was deleted"))
		}
	}
	l.begun = l.begun || len(releases) > 0
	return out
}

// live draws a screen until the watch ends or the user quits.
func (w *watching) live(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.began = w.session.Clock.Now()
	m := &model{watching: w, screen: view.Screen{Single: len(w.sel.Names) == 1, Width: 80, Height: 24, Paint: paintFor(out)}}
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		err := w.session.Follow(ctx, w.sel, func(state cluster.State) bool {
			program.Send(state)
			return ctx.Err() == nil
		})
		if err != nil {
			program.Send(err)
		}
	}()
	_, err := program.Run()
	cancel()
	<-followed
	if err != nil && !errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrInterrupted) {
		return fmt.Errorf("draw on the terminal: %w", err)
	}
	now := w.session.Clock.Now()
	releases := w.releases(now)
	for i := range releases { // the screen is closed; its last state remains
		_, _ = fmt.Fprintln(out, view.Stamped(now, view.Line(&releases[i])))
	}
	if !m.ended {
		return w.interrupted()
	}
	return m.err
}

// model is the live view, which receives keys, sizes, ticks and states from bubbletea.
type model struct {
	*watching
	screen view.Screen
	// ended is true once the watch reached its goal, or failed; err is its error.
	ended bool
	err   error
}

// ticked is the message that a second has passed.
type ticked struct{}

func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return ticked{} }) }

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.Width, m.screen.Height = msg.Width, msg.Height
	case tea.KeyMsg:
		if m.key(msg.String()) {
			return m, tea.Quit
		}
	case cluster.State:
		m.state, m.known = msg, true
	case ticked:
		next = tick()
	case error:
		m.ended, m.err = true, msg
		return m, tea.Quit
	}
	m.draw()
	if isOver, err := m.end(m.screen.Releases, m.screen.Now); isOver {
		m.ended, m.err = true, err
		return m, tea.Quit
	}
	return m, next
}

// key handles a key, and reports whether it quits.
func (m *model) key(key string) bool {
	last := max(len(m.screen.Releases)-1, 0)
	switch key {
	case "q", "ctrl+c":
		return true
	case "esc":
		if !m.screen.Open {
			return true
		}
		m.screen.Open = false
	case "enter", "right", "l":
		m.screen.Open = true
	case "left", "h", "backspace":
		m.screen.Open = false
	case "down", "j":
		m.screen.Selected = min(m.screen.Selected+1, last)
	case "up", "k":
		m.screen.Selected = max(m.screen.Selected-1, 0)
	case "home", "g":
		m.screen.Selected = 0
	case "end", "G":
		m.screen.Selected = last
	}
	return false
}

// draw updates the screen.
func (m *model) draw() {
	m.screen.Now = m.session.Clock.Now()
	m.screen.Releases = m.releases(m.screen.Now)
	m.screen.Notes = m.notes()
	m.screen.Selected = min(m.screen.Selected, max(len(m.screen.Releases)-1, 0))
}

// View implements tea.Model.
func (m *model) View() string {
	if !m.known {
		return "Reading the cluster ..."
	}
	return m.screen.String()
}
