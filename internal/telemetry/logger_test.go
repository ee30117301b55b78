package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
)

func mustLogger(t *testing.T, level, encoding string, w *bytes.Buffer) logr.Logger {
	t.Helper()
	logger, err := NewLogger(level, encoding, w)
	if err != nil {
		t.Fatal(err)
	}
	return logger
}

func TestJSONLinesHaveTheKeysThatUsersFilterBy(t *testing.T) {
	var out bytes.Buffer
	logger := mustLogger(t, "info", "json", &out)
	began := time.Now().Truncate(time.Millisecond)
	logger.WithName("canary").WithValues("canary", "cart.shop").
		Error(errors.New("connection refused"), "Read route", "level", "high", "time", 3)

	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	ts, _ := line["ts"].(string)
	at, err := time.Parse(timestamp, ts)
	if err != nil || at.Before(began) || len(ts) < len("2006-01-02T15:04:05.000Z") {
		t.Errorf("ts %q (%v), want ISO 8601 with milliseconds, not before %s", ts, err, began.Format(timestamp))
	}
	caller, _ := line["caller"].(string)
	if !strings.HasPrefix(caller, "telemetry/logger_test.go:") {
		t.Errorf("caller %q, want folder, file and line", caller)
	}
	if !strings.HasPrefix(out.String(), `{"ts":"`) || !strings.Contains(out.String(), `"level":"error"`) {
		t.Errorf("line %s, want ts first and the level in lower case", out.String())
	}
	delete(line, "ts")
	delete(line, "caller")
	expect(t, "line", line, map[string]any{
		"level": "high", // an attribute of the caller is unchanged; JSON readers take the last of two equal keys
		"msg":   "Read route", "logger": "canary", "canary": "cart.shop", "err": "connection refused", "time": 3.0,
	})
}

// source is a source of events of a library.
type source struct {
	Handle func()
	Name   string
}

func (s source) String() string { return "kind source: " + s.Name }

func TestValuesWithoutJSONAreDescribed(t *testing.T) {
	for _, encoding := range []string{"json", "console"} {
		var out bytes.Buffer
		mustLogger(t, "info", encoding, &out).Info("Starting EventSource", "source", source{Name: "*v1.Deployment"}, "timeout", time.Second,
			"object", types.NamespacedName{Namespace: "shop", Name: "cart"}, "err", errors.New("refused"))
		_, attributes, _ := strings.Cut(out.String(), `"source":`)
		const want = `"kind source: *v1.Deployment","timeout":1000000000,"object":{"Namespace":"shop","Name":"cart"},"err":"refused"}` + "\n"
		if attributes != want {
			t.Errorf("%s: %s, want %s", encoding, attributes, want)
		}
	}
}

func TestConsoleLinesAreReadable(t *testing.T) {
	var out bytes.Buffer
	logger := mustLogger(t, "debug", "console", &out)
	logger.WithValues("canary", "cart.shop").V(1).Info("Decided", "weight", 20)
	logger.Info("Started")

	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("lines %q, want 2", lines)
	}
	for i, want := range [][]string{
		{"debug", "telemetry/logger_test.go", "Decided", `{"canary":"cart.shop","weight":20}`},
		{"info", "telemetry/logger_test.go", "Started"},
	} {
		fields := strings.Split(lines[i], "\t")
		if _, err := time.Parse(timestamp, fields[0]); err != nil {
			t.Errorf("time of %q: %v", lines[i], err)
		}
		fields = fields[1:]
		fields[1], _, _ = strings.Cut(fields[1], ":")
		expect(t, "fields", fields, want)
	}
}

func TestTheLevelDecidesWhichLinesAreWritten(t *testing.T) {
	for level, want := range map[string]string{
		"debug":    "error info v1 v2",
		"info":     "error info",
		"warn":     "error",
		"warning":  "error",
		"error":    "error",
		"fatal":    "error",
		"panic":    "error",
		"nonsense": "error info",
		"":         "error info",
	} {
		t.Run(level, func(t *testing.T) {
			for _, encoding := range []string{"json", "console"} {
				var out bytes.Buffer
				logger := mustLogger(t, level, encoding, &out)
				logger.Error(errors.New("cause"), "logged error")
				logger.Info("logged info")
				logger.V(1).Info("logged v1")
				logger.V(2).Info("logged v2")
				logger.V(3).Info("logged v3")
				var got []string
				for line := range strings.Lines(out.String()) {
					_, logged, _ := strings.Cut(line, "logged ")
					got = append(got, strings.Trim(strings.FieldsFunc(logged, func(r rune) bool { return r == '"' || r == '\t' })[0], "\n"))
				}
				expect(t, encoding+" lines", strings.Join(got, " "), want)
			}
		})
	}
}

func TestAnUnknownEncodingIsRefused(t *testing.T) {
	_, err := NewLogger("info", "xml", &bytes.Buffer{})
	if err == nil || err.Error() != `the log encoding "xml" does not exist: use json or console` {
		t.Errorf("error %v", err)
	}
}
