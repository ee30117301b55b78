package cli

import (
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

func newWatchCommand(connect connector) *cobra.Command {
	c := commonFlags{connect: connect}
	options, plain := goalOptions{flag: "--until"}, false
	cmd := &cobra.Command{
		Use: "watch [KIND] [NAME...]", Short: "Follow releases live", Args: asUsageErrors(cobra.ArbitraryArgs),
		Long: `Shows releases live: phase, weights, the observation window with the time to the next step, checks with value, limit and
verdict, every gate, and events. On a terminal it opens a full-screen view; otherwise, or with --plain, it prints one line
for each change. It watches the cluster, and reconnects when the cluster becomes unreachable.

With --until it exits as soon as:
` + goalsHelp + `
After --timeout, or when you quit before that: 3 if a release waits for user action, else 4.

` + exitCodesHelp,
		Example: "  serin watch\n  serin watch cart\n  serin watch cart --until done --timeout 30m --plain",
		RunE: func(cmd *cobra.Command, args []string) error {
			w := &releaseWatch{}
			if err := options.set(w); err != nil {
				return err
			}
			kinds, names := splitKind(args)
			session, sel, err := c.openSession(kinds, names)
			if err != nil {
				return err
			}
			w.session, w.sel = session, sel
			return w.run(cmd, plain)
		},
	}
	c.register(cmd, true)
	options.register(cmd, &c)
	cmd.Flags().BoolVar(&plain, "plain", false, "print lines, even on a terminal")
	return cmd
}

// run opens the full-screen view on a terminal, and prints lines otherwise.
func (w *releaseWatch) run(cmd *cobra.Command, plain bool) error {
	in, out := cmd.InOrStdin(), cmd.OutOrStdout()
	if !plain && canShowView(in, out) {
		return w.runLive(cmd.Context(), in, out)
	}
	return w.runPlain(cmd.Context(), out)
}

// canShowView reports whether the streams are a terminal that can show the full-screen view.
func canShowView(in io.Reader, out io.Writer) bool {
	_, isTerminalOut := terminalWidth(out)
	return isTerminalOut && os.Getenv("TERM") != "dumb" && isTerminal(in)
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// releaseWatch is the state of one watch, with the goal that ends it.
type releaseWatch struct {
	session *cluster.Session
	sel     cluster.Selection
	// goal ends the watch; the zero value: only the user does. goalText is the flag with the goal, for messages.
	goal     goal
	goalText string
	timeout  time.Duration
	// byUrgency sorts the releases so that those which need the user are first.
	byUrgency bool
	// actions are the keys of the full-screen view with which the user changes the release.
	actions []keyAction

	state     cluster.State
	hasState  bool
	startedAt time.Time
	describer explain.Describer
}

// keyAction is an action of the user in the full-screen view.
type keyAction struct {
	// key triggers the action; help describes it in a few words.
	key, help string
	// run carries it out, and returns what it did.
	run func(ctx context.Context, releases []explain.Release) (string, error)
}

// actedMsg is the message that bubbletea sends after an action, with its result for the user.
type actedMsg string

// describeReleases describes all releases at that time.
func (w *releaseWatch) describeReleases(now time.Time) []explain.Release {
	described := w.describer.Describe(w.state.Releases, now, len(w.state.Releases))
	out := make([]explain.Release, 0, len(described))
	for _, r := range described {
		out = append(out, *r)
	}
	if w.byUrgency {
		explain.SortByUrgency(out)
	}
	return out
}

// notes returns the messages to show before everything else: a missing controller, and interrupted streams.
func (w *releaseWatch) notes() []string {
	var out []string
	if note := w.state.Controller.Note(); note != "" && len(w.state.Releases) > 0 {
		out = append(out, note)
	}
	return append(out, w.state.Interruptions...)
}

// checkEnd reports whether the watch is over, and returns its error.
func (w *releaseWatch) checkEnd(releases []explain.Release, now time.Time) (bool, error) {
	if !w.hasState || w.goal == (goal{}) {
		return false, nil
	}
	if len(releases) < max(len(w.sel.Names), 1) {
		return true, withExitCode(ExitNotFound, errors.New("a release that was waited for was deleted"))
	}
	if reached, err := w.goal.check(releases); reached {
		return true, err
	}
	if w.timeout > 0 && now.Sub(w.startedAt) >= w.timeout {
		return true, w.unfinishedError(releases, fmt.Sprintf("timed out after %s: %s was not reached", explain.FormatDuration(w.timeout), w.goalText))
	}
	return false, nil
}

// interruptedError returns the error of a watch that the user quits.
func (w *releaseWatch) interruptedError() error {
	if w.goal == (goal{}) {
		return nil
	}
	return w.unfinishedError(w.describeReleases(w.session.Clock.Now()), w.goalText+" was not reached before the end of the watch")
}

// unfinishedError returns the error of a watch that ends before it reaches its goal.
func (w *releaseWatch) unfinishedError(releases []explain.Release, message string) error {
	for i := range releases {
		if releases[i].State == release.WaitsForUser {
			return withExitCode(ExitUserAction, fmt.Errorf("%s: %s waits for user action: see serin why %s -n %s",
				message, releases[i].FullName(), releases[i].Argument(), releases[i].Namespace))
		}
	}
	return withExitCode(ExitTimeout, errors.New(message))
}

// runPlain prints one line for each change until the watch is over.
func (w *releaseWatch) runPlain(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	states, followErr := make(chan cluster.State), make(chan error, 1)
	go func() {
		defer close(followErr)
		followErr <- w.session.Follow(ctx, w.sel, func(state cluster.State) bool {
			select {
			case states <- state:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	err := w.printChanges(ctx, out, states, followErr)
	cancel()
	for range followErr { // wait until Follow returns
	}
	return err
}

func (w *releaseWatch) printChanges(ctx context.Context, out io.Writer, states <-chan cluster.State, followErr <-chan error) error {
	tick := w.session.Clock.NewTicker(time.Second)
	defer tick.Stop()
	w.startedAt = w.session.Clock.Now()
	lines := newPrintedLines()
	for {
		select {
		case <-ctx.Done():
			return w.interruptedError()
		case err := <-followErr:
			if ctx.Err() != nil {
				err = w.interruptedError()
			}
			return err
		case w.state = <-states:
			w.hasState = true
		case <-tick.C():
		}
		now := w.session.Clock.Now()
		releases := w.describeReleases(now)
		for _, line := range lines.nextLines(releases, w.notes(), now) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
		if isOver, err := w.checkEnd(releases, now); isOver {
			return err
		}
	}
}

// printedLines records the lines that were printed, so that each change is printed once.
type printedLines struct {
	// byRelease contains the last line of each release, and events the time of the last printed occurrence of each event.
	byRelease   map[string]string
	events      map[string]time.Time
	notes       []string
	hasReleases bool
}

func newPrintedLines() *printedLines {
	return &printedLines{byRelease: map[string]string{}, events: map[string]time.Time{}}
}

// nextLines returns the lines that were not printed yet: notes, events in their order, then the releases that changed. Events from
// before the start of the watch are omitted.
func (l *printedLines) nextLines(releases []explain.Release, notes []string, now time.Time) []string {
	var out []string
	for _, note := range notes {
		if !slices.Contains(l.notes, note) {
			out = append(out, view.WithTime(now, "note: "+note))
		}
	}
	for _, note := range l.notes {
		if !slices.Contains(notes, note) {
			out = append(out, view.WithTime(now, "note: resolved: "+note))
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
			if l.hasReleases {
				out = append(out, view.WithTime(event.At, view.EventLine(r, event)))
			}
		}
		if line := view.ReleaseLine(r); l.byRelease[r.FullName()] != line {
			l.byRelease[r.FullName()] = line
			out = append(out, view.WithTime(now, line))
		}
	}
	for name := range l.byRelease {
		if !existing[name] {
			delete(l.byRelease, name)
			out = append(out, view.WithTime(now, name+" was deleted"))
		}
	}
	l.hasReleases = l.hasReleases || len(releases) > 0
	return out
}

// runLive shows the full-screen view until the watch ends or the user quits.
func (w *releaseWatch) runLive(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.startedAt = w.session.Clock.Now()
	m := newModel(ctx, w, paintFor(out))
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
	releases := w.describeReleases(now)
	for i := range releases { // the screen is closed; its last state remains
		_, _ = fmt.Fprintln(out, view.WithTime(now, view.ReleaseLine(&releases[i])))
	}
	if !m.hasEnded {
		return w.interruptedError()
	}
	return m.err
}

// model is the full-screen view. Bubbletea passes it keys, sizes of the terminal, ticks and states.
type model struct {
	*releaseWatch
	screen view.Screen
	// hasEnded is true once the watch has reached its goal or failed; err is its error.
	hasEnded bool
	err      error
	// act returns the command that carries out an action; acted is the result of the last one.
	act   func(keyAction) tea.Cmd
	acted string
}

// newModel returns the view of a watch. ctx is that of the actions of the user.
func newModel(ctx context.Context, w *releaseWatch, paint view.Paint) *model {
	m := &model{releaseWatch: w, screen: view.Screen{Single: len(w.sel.Names) == 1, Width: 80, Height: 24, Paint: paint}}
	for _, action := range w.actions {
		m.screen.Keys = append(m.screen.Keys, action.key+" "+action.help)
	}
	m.act = func(action keyAction) tea.Cmd {
		releases := m.screen.Releases
		return func() tea.Msg {
			text, err := action.run(ctx, releases)
			if err != nil {
				text = action.help + ": " + err.Error()
			}
			return actedMsg(text)
		}
	}
	return m
}

// tickMsg is the message that bubbletea sends every second.
type tickMsg struct{}

func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} }) }

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.Width, m.screen.Height = msg.Width, msg.Height
	case tea.KeyMsg:
		if m.handleKey(msg.String()) {
			return m, tea.Quit
		}
		if i := slices.IndexFunc(m.actions, func(a keyAction) bool { return a.key == msg.String() }); i >= 0 {
			next = m.act(m.actions[i])
		}
	case actedMsg:
		m.acted = string(msg)
	case cluster.State:
		m.state, m.hasState = msg, true
	case tickMsg:
		next = tick()
	case error:
		m.hasEnded, m.err = true, msg
		return m, tea.Quit
	}
	m.updateScreen()
	if isOver, err := m.checkEnd(m.screen.Releases, m.screen.Now); isOver {
		m.hasEnded, m.err = true, err
		return m, tea.Quit
	}
	return m, next
}

// handleKey handles a key, and reports whether the key quits the view.
func (m *model) handleKey(key string) bool {
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

// updateScreen sets the releases and notes of the screen to the current state.
func (m *model) updateScreen() {
	before := m.screen.Releases
	m.screen.Now = m.session.Clock.Now()
	m.screen.Releases = m.describeReleases(m.screen.Now)
	m.screen.Notes = m.notes()
	if m.acted != "" {
		m.screen.Notes = append(m.screen.Notes, m.acted)
	}
	if m.byUrgency {
		m.screen.Summary = view.SummaryLine(explain.Summarize(m.screen.Releases))
	}
	if m.screen.Selected < len(before) { // the order changes with the urgency, or when a release is created or deleted
		selected := before[m.screen.Selected].Key()
		if i := slices.IndexFunc(m.screen.Releases, func(r explain.Release) bool { return r.Key() == selected }); i >= 0 {
			m.screen.Selected = i
		}
	}
	m.screen.Selected = min(m.screen.Selected, max(len(m.screen.Releases)-1, 0))
}

// View implements tea.Model.
func (m *model) View() string {
	if !m.hasState {
		return "Reading the cluster ..."
	}
	return m.screen.String()
}
