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

// profilePeriod is the period of one profile. It bounds how long a measurement waits for its last profile; Serin's server ends
// responses after a minute.
const profilePeriod = 15 * time.Second

// profileProcessor stores profiles of the processor time, if they were requested, until the returned function is called: name-1.pprof
// and so on, which "go tool pprof" adds up. The function waits for the last one.
func (s *stage) profileProcessor(ctx context.Context, name string) (end func() error) {
	if s.profiles == "" {
		return func() error { return nil }
	}
	ended, saved := make(chan struct{}), make(chan error, 1)
	go func() {
		url := fmt.Sprintf("%sprofile?seconds=%d", profilesURL, int(profilePeriod.Seconds()))
		for i := 1; ; i++ {
			if err := s.saveProfile(ctx, url, fmt.Sprintf("%s-%d.pprof", name, i)); err != nil {
				saved <- err
				return
			}
			select {
			case <-ended:
				saved <- nil
				return
			default:
			}
		}
	}()
	return func() error {
		close(ended)
		return <-saved
	}
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
