//go:build linux

// Package browser opens pages in headless Chromium, for tests that look at what users see.
//
// It knows pages, their errors and their accessibility. It must not know the dashboard, clusters or releases.
package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// axe is axe-core 4.11.0, which checks pages for barriers. Its licence is in the same folder.
//
//go:embed axe/axe.min.js
var axe string

// timeout is the maximum duration of one step.
const timeout = 60 * time.Second

// Page is one page in a browser of its own.
type Page struct {
	t   testing.TB
	ctx context.Context //nolint:containedctx // the browser of the test

	mu     sync.Mutex
	errors []string
}

// Find returns the path of Chromium; empty: it is not installed.
func Find() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Open starts a browser, which ends with the test. The test is skipped on a machine without Chromium, but not in continuous
// integration, where hack/browser.sh installs it.
func Open(t testing.TB) *Page {
	t.Helper()
	path := Find()
	if path == "" && os.Getenv("CI") != "" {
		t.Fatal("there is no Chromium: run hack/browser.sh")
	}
	if path == "" {
		t.Skip("there is no Chromium: run hack/browser.sh as root on Debian")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...) // the cleanup ends it
	ctx, cancel := chromedp.NewContext(allocator)
	p := &Page{t: t, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			p.Screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-")) //nolint:contextcheck // in the context of the browser
		}
		_ = chromedp.Cancel(ctx) // waits until the browser has ended, so that its folder can be deleted
		cancel()
		cancelAllocator()
	})
	if err := chromedp.Do(ctx); err != nil { // the browser ends with the context of the first step
		t.Fatalf("start Chromium: %v", err)
	}
	p.Resize(1280, 900)
	go p.recordErrors()
	return p
}

// recordErrors records uncaught exceptions, violations of the content security policy, and failed requests.
func (p *Page) recordErrors() {
	for message, err := range chromedp.Console(p.ctx) {
		if err != nil {
			return
		}
		if kind := fmt.Sprint(message.Type); kind != "error" && kind != "exception" && kind != "assert" {
			continue
		}
		p.mu.Lock()
		p.errors = append(p.errors, message.Text)
		p.mu.Unlock()
	}
}

// Errors returns the errors in the console of the page so far.
func (p *Page) Errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errors
}

// Do performs steps as a user does.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	err := chromedp.Do(ctx, steps...)
	for isReplacedElement(err) && ctx.Err() == nil {
		err = chromedp.Do(ctx, steps...)
	}
	if err != nil {
		p.t.Fatalf("use the page: %v; it shows:\n%s", err, p.Text())
	}
}

// isReplacedElement reports whether a page that is rendered live replaced the element after it was found. Nothing was done with it.
func isReplacedElement(err error) bool {
	return err != nil && strings.Contains(err.Error(), "Could not find node with given id")
}

// Resize sets the size of the window in pixels.
func (p *Page) Resize(width, height int64) {
	p.t.Helper()
	p.Do(chromedp.EmulateViewport(width, height))
}

// Open opens an address.
func (p *Page) Open(address string) {
	p.t.Helper()
	p.Do(chromedp.Navigate(address))
}

// Click clicks the middle of the element that a CSS selector selects.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.Do(chromedp.Click(selector, chromedp.NodeVisible, chromedp.NodeEnabled))
}

// clickAttempts is the number of times that a user clicks before giving up, clickPatience the time before the next attempt.
const (
	clickAttempts = 3
	clickPatience = 15 * time.Second
)

// ClickUntil clicks an element until an expression is true. A page that is rendered live may move an element between the moment in
// which its position is determined and the click.
func (p *Page) ClickUntil(selector, expression string) {
	p.t.Helper()
	for attempt := range clickAttempts {
		p.Click(selector)
		ctx, cancel := context.WithTimeout(p.ctx, timeout)
		_, err := chromedp.Run(ctx, chromedp.Poll[bool]("Boolean("+expression+")", chromedp.WithPollingTimeout(clickPatience)))
		cancel()
		if err == nil {
			return
		}
		p.t.Logf("click %d on %s: %s is not true yet: %v", attempt+1, selector, expression, err)
	}
	p.t.Fatalf("clicks on %s: %s never became true; the page shows:\n%s", selector, expression, p.Text())
}

// Type types a text into an input.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Do(chromedp.SendKeys(selector, text, chromedp.NodeVisible))
}

// Press presses keys one after the other: a character, or the name of a key such as Enter.
func (p *Page) Press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		if key == "Enter" {
			key = kb.Enter
		}
		p.Do(chromedp.KeyEvent(key))
	}
}

// PreferColorScheme sets the preference of the user: light or dark.
func (p *Page) PreferColorScheme(scheme string) {
	p.t.Helper()
	p.Do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// Text returns the visible text of the page.
func (p *Page) Text() string {
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body ? document.body.innerText : ''"))
	if err != nil {
		return err.Error()
	}
	return text
}

// WaitForText waits until the page shows a text.
func (p *Page) WaitForText(text string) {
	p.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		p.t.Fatal(err)
	}
	p.WaitUntil(fmt.Sprintf("document.body.innerText.includes(%s)", quoted))
}

// WaitUntil waits until an expression is true.
func (p *Page) WaitUntil(expression string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool]("Boolean("+expression+")", chromedp.WithPollingTimeout(timeout))); err != nil {
		p.t.Fatalf("wait until %s: %v; the page shows:\n%s", expression, err, p.Text())
	}
}

// Evaluate returns the value of an expression.
func Evaluate[T any](p *Page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("evaluate %.200s: %v", expression, err)
	}
	return value
}

// Barriers returns the violations of the accessibility guidelines WCAG 2 A and AA on the page, in one line each.
func (p *Page) Barriers() []string {
	p.t.Helper()
	Evaluate[bool](p, axe+"; true")
	return Evaluate[[]string](p, `axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] }).then((found) =>
		found.violations.flatMap((v) => v.nodes.map((node) => v.id + ": " + v.help + ": " + node.html)))`)
}

// Screenshot stores a picture of the whole page in the folder that SERIN_SCREENSHOTS names; without one it does nothing.
func (p *Page) Screenshot(name string) {
	folder := os.Getenv("SERIN_SCREENSHOTS")
	if folder == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644)
	}
	if err != nil {
		p.t.Logf("take the screenshot %s: %v", name, err)
	}
}

// Check checks that a page can be used by everyone, in both color schemes and on a phone, and takes screenshots of it.
func (p *Page) Check(name string) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.PreferColorScheme(scheme)
		for _, barrier := range p.Barriers() {
			p.t.Errorf("page %s, %s: %s", name, scheme, barrier)
		}
		p.Screenshot(name + "-" + scheme)
	}
	p.Resize(360, 740)
	if width := Evaluate[int](p, "document.documentElement.scrollWidth"); width > 360 {
		p.t.Errorf("page %s is %d pixels wide on a screen of 360", name, width)
	}
	p.Screenshot(name + "-phone")
	p.Resize(1280, 900)
	p.PreferColorScheme("light")
}
