//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Paths of Serin's debug endpoints.
const (
	profilingAddress = "127.0.0.1:6060"
	metricsURL       = "http://127.0.0.1:8080/metrics"
	profilesURL      = "http://" + profilingAddress + "/debug/pprof/"
)

// maxProfile is the longest profile that Serin serves: its server ends responses after a minute.
const maxProfile = 50 * time.Second

// profileProcessor starts to store a profile of the processor time of the next period in a file, if profiles were requested. The
// channel receives the result.
func (s *stage) profileProcessor(ctx context.Context, file string, period time.Duration) <-chan error {
	saved := make(chan error, 1)
	seconds := int(min(period, maxProfile).Seconds())
	go func() { saved <- s.saveProfile(ctx, fmt.Sprintf("%sprofile?seconds=%d", profilesURL, seconds), file) }()
	return saved
}

// saveProfile stores the response of a debug endpoint in a file, if profiles were requested.
func (s *stage) saveProfile(ctx context.Context, url, file string) error {
	if s.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(s.profiles, 0o755); err != nil {
		return fmt.Errorf("keep profile %s: %w", file, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("keep profile %s: %w", file, err)
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return fmt.Errorf("keep profile %s: %w", file, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("keep profile %s: Serin answered %s", file, response.Status)
	}
	output, err := os.Create(filepath.Join(s.profiles, file))
	if err != nil {
		return fmt.Errorf("keep profile %s: %w", file, err)
	}
	if _, err := io.Copy(output, response.Body); err != nil {
		output.Close()
		return fmt.Errorf("keep profile %s: %w", file, err)
	}
	return output.Close()
}
