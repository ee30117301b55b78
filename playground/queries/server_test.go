//go:build linux

package queries

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/process"
)

// server is a Prometheus without targets that receives remote writes.
type server struct {
	url   string
	group *process.Group
}

// startServer runs a server until the test ends.
func startServer(t *testing.T) *server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // Prometheus may have to be built
	t.Cleanup(cancel)
	builder, err := build.New(func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	program, err := builder.Prometheus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	folder, address := t.TempDir(), freeAddress(t)
	config := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(config, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{url: "http://" + address, group: process.NewGroup(folder)}
	t.Cleanup(func() {
		if err := s.group.Close(); err != nil {
			t.Errorf("stop Prometheus: %v", err)
		}
	})
	_, err = s.group.Start(process.Spec{Name: "prometheus", Argv: []string{
		program, "--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(folder, "data"),
		"--web.listen-address=" + address, "--web.enable-remote-write-receiver", "--log.level=warn",
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.waitUntilReady(ctx, t)
	return s
}

// freeAddress returns an unused address. Prometheus cannot listen on port 0, because it does not report the assigned port.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (s *server) waitUntilReady(ctx context.Context, t *testing.T) {
	t.Helper()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/-/ready", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("Prometheus is not ready: %v; its log: %s", err, s.group.Tail("prometheus", 20))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// series is one time series: its labels, and its increase per second.
type series struct {
	labels map[string]string
	rate   float64
}

// The number of samples of each series and their interval: five minutes, more than a query over one minute needs.
const (
	scrapes        = 61
	scrapeInterval = 5 * time.Second
)

// write sends the samples that Prometheus would have scraped in the last five minutes.
func (s *server) write(t *testing.T, all []series) {
	t.Helper()
	end := time.Now()
	var body []byte
	for _, one := range all {
		body = protowire.AppendTag(body, 1, protowire.BytesType)
		body = protowire.AppendBytes(body, timeSeries(one, end))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/write", bytes.NewReader(s2.EncodeSnappy(nil, body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Encoding", "snappy")
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if message, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusNoContent {
		t.Fatalf("Prometheus rejects the series: %s %s", answer.Status, message)
	}
}

// timeSeries encodes a series in the format of remote write.
func timeSeries(one series, end time.Time) []byte {
	var out []byte
	for _, name := range slices.Sorted(maps.Keys(one.labels)) {
		var label []byte
		label = protowire.AppendTag(label, 1, protowire.BytesType)
		label = protowire.AppendString(label, name)
		label = protowire.AppendTag(label, 2, protowire.BytesType)
		label = protowire.AppendString(label, one.labels[name])
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, label)
	}
	for i := range scrapes {
		at := end.Add(-time.Duration(scrapes-1-i) * scrapeInterval)
		value := one.rate * (time.Duration(i) * scrapeInterval).Seconds()
		var sample []byte
		sample = protowire.AppendTag(sample, 1, protowire.Fixed64Type)
		sample = protowire.AppendFixed64(sample, math.Float64bits(value))
		sample = protowire.AppendTag(sample, 2, protowire.VarintType)
		sample = protowire.AppendVarint(sample, uint64(at.UnixMilli()))
		out = protowire.AppendTag(out, 2, protowire.BytesType)
		out = protowire.AppendBytes(out, sample)
	}
	return out
}
