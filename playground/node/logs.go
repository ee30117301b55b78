//go:build linux

package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/serin-dev/serin/playground/network"
)

func (n *Node) logFile(namespace, pod, container string) string {
	return filepath.Join(n.Folder, "logs", namespace+"_"+pod+"_"+container+".log")
}

// serveLogs serves the part of the kubelet API that kubectl logs requires, until ctx ends.
func (n *Node) serveLogs(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.handleLogs)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{n.Certificate}, MinVersion: tls.VersionTLS12},
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(network.NodeAddress.String(), strconv.Itoa(Port)))
	if err != nil {
		return fmt.Errorf("serve logs: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve logs: %w", err)
	}
	return nil
}

// followInterval is the interval at which a followed log is read.
const followInterval = 200 * time.Millisecond

// handleLogs supports the parameters tailLines and follow. All restarts of a container write to one log.
func (n *Node) handleLogs(w http.ResponseWriter, r *http.Request) {
	file, err := os.Open(n.logFile(filepath.Base(r.PathValue("namespace")), filepath.Base(r.PathValue("pod")), filepath.Base(r.PathValue("container"))))
	if err != nil {
		http.Error(w, "the container has no log yet", http.StatusNotFound)
		return
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		http.Error(w, "the log cannot be read", http.StatusInternalServerError)
		return
	}
	if lines, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
		text = lastLines(text, lines)
	}
	if _, err := w.Write(text); err != nil || r.URL.Query().Get("follow") != "true" {
		return
	}
	ticker := n.Clock.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C():
		}
		if _, err := io.Copy(w, file); err != nil {
			return
		}
	}
}

// lastLines returns the last lines of text.
func lastLines(text []byte, lines int) []byte {
	at := len(bytes.TrimSuffix(text, []byte("\n")))
	for range lines {
		at = bytes.LastIndexByte(text[:at], '\n')
		if at < 0 {
			return text
		}
	}
	if lines == 0 {
		return nil
	}
	return text[at+1:]
}
