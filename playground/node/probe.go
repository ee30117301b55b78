//go:build linux

package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// readinessPollInterval is the time between two readiness or startup probes before the first success. A kubelet waits a whole
// period; people and tests wait for every new pod.
const readinessPollInterval = 200 * time.Millisecond

// runProbes asks one life of a container how it is, until ctx ends.
func (c *container) runProbes(ctx context.Context, kill func()) {
	if c.spec.StartupProbe != nil {
		failures := int32(0)
		ok := c.repeatProbe(ctx, c.spec.StartupProbe, func(ok bool) bool {
			failures++
			if !ok && failures >= c.spec.StartupProbe.FailureThreshold {
				kill()
				return false
			}
			return !ok
		})
		if !ok || ctx.Err() != nil {
			return
		}
		c.update(func() { c.started, c.ready = true, c.spec.ReadinessProbe == nil })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.probeLiveness(ctx, kill)
	}()
	c.probeReadiness(ctx)
	<-done
}

func (c *container) probeReadiness(ctx context.Context) {
	probe := c.spec.ReadinessProbe
	if probe == nil {
		return
	}
	good, bad := int32(0), int32(0)
	c.repeatProbe(ctx, probe, func(ok bool) bool {
		if ok {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		c.mu.Lock()
		was := c.ready
		c.mu.Unlock()
		is := was
		switch {
		case good >= max(probe.SuccessThreshold, 1):
			is = true
		case bad >= max(probe.FailureThreshold, 1):
			is = false
		}
		if is != was {
			c.update(func() { c.ready = is })
		}
		return true
	})
}

func (c *container) probeLiveness(ctx context.Context, kill func()) {
	probe := c.spec.LivenessProbe
	if probe == nil {
		return
	}
	bad := int32(0)
	c.repeatProbe(ctx, probe, func(ok bool) bool {
		if bad++; ok {
			bad = 0
		}
		if bad < max(probe.FailureThreshold, 1) {
			return true
		}
		kill()
		return false
	})
}

// repeatProbe probes until heard returns false, and reports the last result.
func (c *container) repeatProbe(ctx context.Context, probe *corev1.Probe, heard func(ok bool) bool) bool {
	clk := c.worker.node.Clock
	wait := time.Duration(probe.InitialDelaySeconds) * time.Second
	period := time.Duration(max(probe.PeriodSeconds, 1)) * time.Second
	once := false
	for {
		select {
		case <-ctx.Done():
			return false
		case <-clk.After(wait):
		}
		ok := c.probeOnce(ctx, probe) == nil
		if ctx.Err() != nil {
			return false
		}
		once = once || ok
		if !heard(ok) {
			return ok
		}
		wait = period
		if !once && probe != c.spec.LivenessProbe {
			wait = min(period, readinessPollInterval)
		}
	}
}

// probeOnce probes once.
func (c *container) probeOnce(ctx context.Context, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(probe.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		return c.probeHTTP(ctx, probe.HTTPGet)
	case probe.TCPSocket != nil:
		address, err := c.probeAddress(probe.TCPSocket.Host, probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	default:
		return fmt.Errorf("container %s has a probe that the playground does not know: use httpGet or tcpSocket", c.spec.Name)
	}
}

func (c *container) probeHTTP(ctx context.Context, get *corev1.HTTPGetAction) error {
	address, err := c.probeAddress(get.Host, get.Port)
	if err != nil {
		return err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/"+strings.TrimPrefix(get.Path, "/"), nil)
	if err != nil {
		return err
	}
	for _, header := range get.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
		if strings.EqualFold(header.Name, "host") {
			request.Host = header.Value
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: probeTLSConfig()}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 10<<10)); err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// probeAddress resolves a port by number or name; the host is the pod unless the probe names another.
func (c *container) probeAddress(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		c.worker.mu.Lock()
		host = c.worker.address.String()
		c.worker.mu.Unlock()
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(port.IntValue())), nil
	}
	for _, p := range c.spec.Ports {
		if p.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(p.ContainerPort))), nil
		}
	}
	if _, err := netip.ParseAddrPort("0.0.0.0:" + port.StrVal); err == nil {
		return net.JoinHostPort(host, port.StrVal), nil
	}
	return "", fmt.Errorf("container %s has no port named %s", c.spec.Name, port.StrVal)
}
