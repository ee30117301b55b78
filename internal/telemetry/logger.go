package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
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

// levelDebug enables V(1), decisions, and V(2), requests; only libraries log at higher verbosity. logr's V(n) is -n in slog.
const levelDebug = slog.Level(-2)

// NewLogger returns a logger that writes to w. level is debug, info, warn, warning, error, fatal or panic (the last two mean
// error); any other value means info, as it always has for this flag. encoding is json, one object per line, or console,
// the readable form; for any other value it returns an error message for the user. Each line has level, ts, caller, msg
// and the attributes that the caller adds.
func NewLogger(level, encoding string, w io.Writer) (logr.Logger, error) {
	limit := parseLevel(level)
	switch encoding {
	case "json":
		return logr.FromSlogHandler(lazyHandler{handler: slog.NewJSONHandler(w, &slog.HandlerOptions{
			AddSource:   true,
			Level:       limit,
			ReplaceAttr: renameAttribute,
		})}), nil
	case "console":
		return logr.FromSlogHandler(lazyHandler{handler: newConsole(w, limit)}), nil
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

// renameAttribute converts slog's own keys and values into those that users filter by. It compares types too, so that an
// attribute of the same name that a caller added is unchanged.
func renameAttribute(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return describeAttribute(attr)
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
	return describeAttribute(attr)
}

// describeAttribute replaces a value that has no JSON form, but describes itself. Libraries log sources of events, which contain
// functions.
func describeAttribute(attr slog.Attr) slog.Attr {
	if attr.Value.Kind() != slog.KindAny {
		return attr
	}
	value, describes := attr.Value.Any().(fmt.Stringer)
	if _, isError := value.(error); !describes || isError {
		return attr
	}
	if _, err := json.Marshal(value); err == nil {
		return attr
	}
	return slog.String(attr.Key, value.String())
}

// callerLocation returns the last folder, the file and the line: enough to find the call, without the path of the build.
func callerLocation(file string, line int) string {
	return filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file) + ":" + strconv.Itoa(line)
}

// lazyHandler passes attributes to a handler only with a record. A handler formats them at once, but a reconciliation derives three
// loggers and rarely writes a line.
type lazyHandler struct {
	handler    slog.Handler
	attributes []slog.Attr
}

func (l lazyHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler.Enabled(ctx, level)
}

func (l lazyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lazyHandler{l.handler, slices.Concat(l.attributes, attrs)}
}

func (l lazyHandler) WithGroup(name string) slog.Handler {
	return lazyHandler{handler: l.handler.WithAttrs(l.attributes).WithGroup(name)}
}

func (l lazyHandler) Handle(ctx context.Context, record slog.Record) error {
	return l.handler.WithAttrs(l.attributes).Handle(ctx, record)
}

// consoleHandler writes time, level, caller, message and a JSON object with the attributes, separated by tabs.
type consoleHandler struct {
	out        *sharedWriter
	attributes slog.Handler // writes only the attributes, to out.attributes
}

// sharedWriter is the output that all loggers derived from one console share.
type sharedWriter struct {
	mu         sync.Mutex
	w          io.Writer
	attributes bytes.Buffer
}

func newConsole(w io.Writer, level slog.Level) consoleHandler {
	out := &sharedWriter{w: w}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: dropStandardKeys}
	return consoleHandler{out: out, attributes: slog.NewJSONHandler(&out.attributes, options)}
}

// dropStandardKeys omits slog's own keys, which a console line shows in front of the attributes. It recognises the level by its
// type, and the message because Handle empties it.
func dropStandardKeys(groups []string, attr slog.Attr) slog.Attr {
	_, isLevel := attr.Value.Any().(slog.Level)
	if len(groups) == 0 && (isLevel || attr.Equal(slog.String(slog.MessageKey, ""))) {
		return slog.Attr{}
	}
	return describeAttribute(attr)
}

func (c consoleHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return c.attributes.Enabled(ctx, level)
}

func (c consoleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return consoleHandler{out: c.out, attributes: c.attributes.WithAttrs(attrs)}
}

func (c consoleHandler) WithGroup(name string) slog.Handler {
	return consoleHandler{out: c.out, attributes: c.attributes.WithGroup(name)}
}

func (c consoleHandler) Handle(ctx context.Context, record slog.Record) error {
	frame, _ := runtime.CallersFrames([]uintptr{record.PC}).Next()
	attributesOnly := slog.NewRecord(time.Time{}, 0, "", 0)
	record.Attrs(func(attr slog.Attr) bool {
		attributesOnly.AddAttrs(attr)
		return true
	})

	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.attributes.Reset()
	if err := c.attributes.Handle(ctx, attributesOnly); err != nil {
		return err
	}
	fields := []string{
		record.Time.Format(timestamp), levelName(record.Level), callerLocation(frame.File, frame.Line), record.Message,
	}
	if attributes := strings.TrimSpace(c.out.attributes.String()); attributes != "{}" {
		fields = append(fields, attributes)
	}
	_, err := io.WriteString(c.out.w, strings.Join(fields, "\t")+"\n")
	return err
}

// logEvent logs the unchanged text of an event, because users filter logs by it, at the level of its type. logr has no
// warnings, so the record goes directly to the handler. Its caller is the function that recorded the event.
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
	_ = handler.Handle(ctx, record) // an error of the log has no other place to be reported
}
