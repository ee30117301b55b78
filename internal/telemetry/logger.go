package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/serin-dev/serin/internal/release"
)

// timestamp is ISO 8601 with milliseconds.
const timestamp = "2006-01-02T15:04:05.000Z0700"

// levelDebug lets V(1), decisions, and V(2), requests, through; beyond it only libraries talk. logr's V(n) is -n in slog.
const levelDebug = slog.Level(-2)

// NewLogger writes log lines to w. level is debug, info, warn, warning, error, fatal or panic (these two mean error);
// anything else means info, as it always has for users of this flag. encoding is json, one object a line, or console,
// for a person's eyes; the error for any other is a sentence for the user. Lines have level, ts, caller, msg and
// whatever the caller adds.
func NewLogger(level, encoding string, w io.Writer) (logr.Logger, error) {
	limit := parseLevel(level)
	switch encoding {
	case "json":
		return logr.FromSlogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{
			AddSource:   true,
			Level:       limit,
			ReplaceAttr: renameAttribute,
		})), nil
	case "console":
		return logr.FromSlogHandler(newConsole(w, limit)), nil
	default:
		return logr.Discard(), fmt.Errorf("the log encoding %q does not exist: use json or console", encoding)
	}
}

func parseLevel(level string) slog.Level {
	switch level {
	case "debug":
		return levelDebug
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "fatal", "panic": // nothing here is above an error, and logr writes errors at any level
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

func levelName(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warn"
	default:
		return "error"
	}
}

// renameAttribute gives slog's own keys the names and forms that users filter by. It looks at types too, so that a caller's
// attribute of the same name stays as it is.
func renameAttribute(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return attr
	}
	switch value := attr.Value.Any().(type) {
	case time.Time:
		if attr.Key == slog.TimeKey {
			return slog.String("ts", value.Format(timestamp))
		}
	case slog.Level:
		if attr.Key == slog.LevelKey {
			return slog.String("level", levelName(value))
		}
	case *slog.Source:
		if attr.Key == slog.SourceKey {
			return slog.String("caller", callerLocation(value.File, value.Line))
		}
	}
	return attr
}

// callerLocation is the last folder, the file and the line: enough to find it, and not where it was built.
func callerLocation(file string, line int) string {
	return filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file) + ":" + strconv.Itoa(line)
}

// consoleHandler writes time, level, place, message and a JSON object with the rest, separated by tabs.
type consoleHandler struct {
	out  *sharedWriter
	rest slog.Handler // writes the attributes, and nothing else, to out.rest
}

// sharedWriter is what all loggers derived from one console share.
type sharedWriter struct {
	mu   sync.Mutex
	w    io.Writer
	rest bytes.Buffer
}

func newConsole(w io.Writer, level slog.Level) consoleHandler {
	out := &sharedWriter{w: w}
	return consoleHandler{out: out, rest: slog.NewJSONHandler(&out.rest, &slog.HandlerOptions{Level: level, ReplaceAttr: dropStandardKeys})}
}

// dropStandardKeys leaves out slog's own keys, which stand at the front of a console line: the level by its type, the message
// because Handle empties it.
func dropStandardKeys(groups []string, attr slog.Attr) slog.Attr {
	_, isLevel := attr.Value.Any().(slog.Level)
	if len(groups) == 0 && (isLevel || attr.Equal(slog.String(slog.MessageKey, ""))) {
		return slog.Attr{}
	}
	return attr
}

func (c consoleHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return c.rest.Enabled(ctx, level)
}

func (c consoleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return consoleHandler{out: c.out, rest: c.rest.WithAttrs(attrs)}
}

func (c consoleHandler) WithGroup(name string) slog.Handler {
	return consoleHandler{out: c.out, rest: c.rest.WithGroup(name)}
}

func (c consoleHandler) Handle(ctx context.Context, record slog.Record) error {
	frame, _ := runtime.CallersFrames([]uintptr{record.PC}).Next()
	bare := slog.NewRecord(time.Time{}, 0, "", 0)
	record.Attrs(func(attr slog.Attr) bool {
		bare.AddAttrs(attr)
		return true
	})

	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.rest.Reset()
	if err := c.rest.Handle(ctx, bare); err != nil {
		return err
	}
	fields := []string{
		record.Time.Format(timestamp), levelName(record.Level), callerLocation(frame.File, frame.Line), record.Message,
	}
	if rest := strings.TrimSpace(c.out.rest.String()); rest != "{}" {
		fields = append(fields, rest)
	}
	_, err := io.WriteString(c.out.w, strings.Join(fields, "\t")+"\n")
	return err
}

// logEvent writes an event's text as it is, because people filter logs by it, at the level of its type. logr has no
// warnings, so the line goes to the handler below it. The place it names is that of whoever recorded the event.
func logEvent(ctx context.Context, now time.Time, log logr.Logger, about corev1.ObjectReference, event release.Event) {
	level := slog.LevelInfo
	switch {
	case event.Internal:
		level = slog.LevelError
	case event.Type == release.Warning:
		level = slog.LevelWarn
	}
	handler := logr.ToSlogHandler(log)
	if !handler.Enabled(ctx, level) {
		return
	}
	var caller [1]uintptr
	runtime.Callers(3, caller[:]) // above runtime.Callers, logEvent and Recorder.Event
	record := slog.NewRecord(now, level, event.Message, caller[0])
	record.AddAttrs(slog.String(strings.ToLower(about.Kind), about.Name+"."+about.Namespace))
	_ = handler.Handle(ctx, record) // a log that cannot be written has nobody to tell
}
