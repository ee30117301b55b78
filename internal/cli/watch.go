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

// goal is what a watch waits for.
type goal string

// The goals. Without one a watch goes on until the person leaves.
const (
	untilLeft     goal = ""
	untilPromoted goal = "promoted"
	untilFailed   goal = "failed"
	untilRest     goal = "rest"
	untilDone     goal = "done"
)

func watchCommand(connect connector) *cobra.Command {
	c := common{connect: connect}
	until, timeout, asLines := "", time.Duration(0), false
	cmd := &cobra.Command{
		Use: "watch [KIND] [NAME...]", Short: "Watch releases while they happen", Args: checked(cobra.ArbitraryArgs),
		Long: `Shows releases live: phase, weights, the window with the time to the next step, checks with value, limit and verdict,
every gate, and what was told. On a terminal it draws a screen; elsewhere, or with --plain, it prints one line for each
change. It follows the cluster instead of asking again and again, and waits for a cluster that goes away.

With --until it ends by itself:
  promoted  all releases are at rest and promoted: 0; one failed: 1
  failed    all releases are at rest and failed: 0
  rest      all releases are at rest, however they ended: 0
  done      all releases are at rest: 0 if all were promoted, 1 if one failed
When --timeout is over, or the watch is left, before that: 3 if one waits for a person, else 4.

` + codes,
		Example: "  serin watch\n  serin watch cart\n  serin watch cart --until done --timeout 30m --plain",
		RunE: func(cmd *cobra.Command, args []string) error {
			w := &watching{goal: goal(until), timeout: timeout}
			switch {
			case !slices.Contains([]goal{untilLeft, untilPromoted, untilFailed, untilRest, untilDone}, w.goal):
				return exit(ExitUsage, fmt.Errorf("--until is %q: give promoted, failed, rest or done", until))
			case timeout < 0:
				return exit(ExitUsage, fmt.Errorf("--timeout is %s: a time cannot be negative", timeout))
			case timeout > 0 && w.goal == untilLeft:
				return exit(ExitUsage, errors.New("--timeout bounds what --until waits for: give --until too"))
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
	cmd.Flags().StringVar(&until, "until", "", "end when the releases are promoted, failed, at rest, or done")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long --until waits, such as 30m; 0: for ever")
	cmd.Flags().BoolVar(&asLines, "plain", false, "print lines, also on a terminal")
	return cmd
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// watching is one watch: what is known, and when it is over.
type watching struct {
	session *cluster.Session
	sel     cluster.Selection
	goal    goal
	timeout time.Duration

	state cluster.State
	known bool
	began time.Time
	// said is what was explained last.
	said map[explain.Key]said
}

// said is an explanation, what it is about, and the moment from which it has to be made anew.
type said struct {
	version  explain.Version
	told     []explain.Event
	until    time.Time
	document explain.Release
}

// releases as they stand at that moment: time alone moves gates too. An explanation holds until then, which keeps a
// screen of a thousand releases cheap.
func (w *watching) releases(now time.Time) []explain.Release {
	out := make([]explain.Release, 0, len(w.state.Releases))
	fresh := make(map[explain.Key]said, len(w.state.Releases))
	for _, seen := range w.state.Releases {
		key, version, told := seen.Key(), seen.Version(), seen.Surroundings().Events
		old, ok := w.said[key]
		if !ok || old.version != version || !slices.Equal(old.told, told) || !now.Before(old.until) {
			document := seen.At(now)
			old = said{version: version, told: told, until: holdsUntil(&document, now), document: document}
		}
		fresh[key] = old
		out = append(out, old.document)
	}
	w.said = fresh
	return out
}

// holdsUntil is when time alone makes an explanation another one.
func holdsUntil(r *explain.Release, now time.Time) time.Time {
	first := r.First()
	if r.State == release.Idle && first == nil {
		return now.Add(time.Hour)
	}
	if first == nil || first.Opener != string(release.ByTime) || !first.Until.After(now) {
		return now // what follows is counted from this moment
	}
	until := first.Until
	for _, gate := range r.Gates {
		if gate.Until.After(now) && gate.Until.Before(until) {
			until = gate.Until
		}
	}
	return until
}

// notes are what a person must know before all else.
func (w *watching) notes() []string {
	var out []string
	if note := w.state.Controller.Note(); note != "" && len(w.state.Releases) > 0 {
		out = append(out, note)
	}
	return append(out, w.state.Lost...)
}

// over says whether the watch has what it waited for, and what it ends with.
func (w *watching) over(releases []explain.Release, now time.Time) (bool, error) {
	if !w.known || w.goal == untilLeft {
		return false, nil
	}
	if len(releases) < max(len(w.sel.Names), 1) {
		return true, exit(ExitNotFound, errors.New("a release that was waited for is gone"))
	}
	if reached, err := reaches(w.goal, releases); reached {
		return true, err
	}
	if w.timeout > 0 && now.Sub(w.began) >= w.timeout {
		return true, w.left(releases, fmt.Sprintf("after %s", w.timeout))
	}
	return false, nil
}

// reaches says whether releases are where they were waited for.
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

// left is what a watch ends with before its goal was reached.
func (w *watching) left(releases []explain.Release, when string) error {
	if w.goal == untilLeft {
		return nil
	}
	for i := range releases {
		if releases[i].State == release.WaitsForUser {
			return exit(ExitPerson, fmt.Errorf("%s it is not %s: %s waits for a person: see serin why %s -n %s",
				when, w.goal, releases[i].FullName(), releases[i].Argument(), releases[i].Namespace))
		}
	}
	return exit(ExitTimeout, fmt.Errorf("%s it is not %s", when, w.goal))
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
	for range ended { // until it is told that nobody listens any more
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
			return w.left(w.releases(w.session.Clock.Now()), "when it was left")
		case err := <-ended:
			if ctx.Err() != nil {
				err = w.left(w.releases(w.session.Clock.Now()), "when it was left")
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
		if over, err := w.over(releases, now); over {
			return err
		}
	}
}

// lines knows what was printed.
type lines struct {
	of     map[string]string
	events map[string]time.Time
	notes  []string
	begun  bool
}

func newLines() *lines {
	return &lines{of: map[string]string{}, events: map[string]time.Time{}}
}

// news are the lines that were not printed yet: notes, events in their order, then the releases that changed. Events
// from before the watch began are no news.
func (l *lines) news(releases []explain.Release, notes []string, now time.Time) []string {
	var out []string
	for _, note := range notes {
		if !slices.Contains(l.notes, note) {
			out = append(out, view.Stamped(now, "note: "+note))
		}
	}
	for _, note := range l.notes {
		if !slices.Contains(notes, note) {
			out = append(out, view.Stamped(now, "note: over: "+note))
		}
	}
	l.notes = notes
	there := map[string]bool{}
	for i := range releases {
		r := &releases[i]
		there[r.FullName()] = true
		for _, event := range r.Events {
			key := r.FullName() + "\x00" + event.Message
			if told, ok := l.events[key]; ok && !event.At.After(told) {
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
		if !there[name] {
			delete(l.of, name)
			out = append(out, view.Stamped(now, name+" is gone"))
		}
	}
	l.begun = l.begun || len(releases) > 0
	return out
}

// live draws a screen until the watch is over or the person leaves.
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
	for i := range releases { // the screen is gone; what it said last stays
		_, _ = fmt.Fprintln(out, view.Stamped(now, view.Line(&releases[i])))
	}
	if !m.ended {
		return w.left(releases, "when it was left")
	}
	return m.err
}

// model is the live view: bubbletea hands it keys, sizes, ticks and states.
type model struct {
	*watching
	screen view.Screen
	// ended is true once the watch has what it waited for, or cannot go on; err is what it ends with.
	ended bool
	err   error
}

// ticked says that a second has passed.
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
	if over, err := m.over(m.screen.Releases, m.screen.Now); over {
		m.ended, m.err = true, err
		return m, tea.Quit
	}
	return m, next
}

// key is true for a key that leaves.
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

// draw brings what is shown up to date.
func (m *model) draw() {
	m.screen.Now = m.session.Clock.Now()
	m.screen.Releases = m.releases(m.screen.Now)
	m.screen.Notes = m.notes()
	m.screen.Selected = min(m.screen.Selected, max(len(m.screen.Releases)-1, 0))
}

// View implements tea.Model.
func (m *model) View() string {
	if !m.known {
		return "Looking at the cluster ..."
	}
	return m.screen.String()
}
