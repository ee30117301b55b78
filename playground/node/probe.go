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

// readinessPollInterval is the interval of readiness and startup probes before the first success. A kubelet waits for a whole
// period, but users and tests wait for every new pod.
const readinessPollInterval = 200 * time.Millisecond

// runProbes probes a running container until ctx ends, which is when the program ends.
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
	successes, failures := int32(0), int32(0)
	c.repeatProbe(ctx, probe, func(ok bool) bool {
		if ok {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		c.mu.Lock()
		before := c.ready
		c.mu.Unlock()
		ready := before
		switch {
		case successes >= max(probe.SuccessThreshold, 1):
			ready = true
		case failures >= max(probe.FailureThreshold, 1):
			ready = false
		}
		if ready != before {
			c.update(func() { c.ready = ready })
		}
		return true
	})
}

func (c *container) probeLiveness(ctx context.Context, kill func()) {
	probe := c.spec.LivenessProbe
	if probe == nil {
		return
	}
	failures := int32(0)
	c.repeatProbe(ctx, probe, func(ok bool) bool {
		if failures++; ok {
			failures = 0
		}
		if failures < max(probe.FailureThreshold, 1) {
			return true
		}
		kill()
		return false
	})
}

// repeatProbe probes until handleResult returns false or ctx ends. It returns the last result, or false if ctx has ended.
func (c *container) repeatProbe(ctx context.Context, probe *corev1.Probe, handleResult func(ok bool) bool) bool {
	clk := c.worker.node.Clock
	wait := time.Duration(probe.InitialDelaySeconds) * time.Second
	period := time.Duration(max(probe.PeriodSeconds, 1)) * time.Second
	succeeded := false
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
		succeeded = succeeded || ok
		if !handleResult(ok) {
			return ok
		}
		wait = period
		if !succeeded && probe != c.spec.LivenessProbe {
			wait = min(period, readinessPollInterval)
		}
	}
}

// probeOnce executes a probe and returns the reason for its failure.
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
		return fmt.Errorf("container %s has a probe that the playground does not support: use httpGet or tcpSocket", c.spec.Name)
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

// probeAddress returns the address for a port number or name. The host defaults to the pod's address.
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
