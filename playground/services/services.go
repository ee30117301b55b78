//go:build linux

// Package services implements Services: it forwards connections to the address
// of a Service to its pods, and resolves its name.
//
// It reads Services and EndpointSlices and needs a network namespace of its
// own. It must not know how pods run, nor gateways.
package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/serin-dev/serin/playground/network"
)

// Server updates the rules and the names when Services and endpoints change.
type Server struct {
	names  Names
	log    *slog.Logger
	synced []cache.InformerSynced
	// changed has a capacity of one: several changes need one synchronization.
	changed  chan struct{}
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

// New registers event handlers with informers, which the caller must start afterwards.
func New(factory informers.SharedInformerFactory, log *slog.Logger) (*Server, error) {
	services := factory.Core().V1().Services()
	endpointSlices := factory.Discovery().V1().EndpointSlices()
	s := &Server{log: log, changed: make(chan struct{}, 1), services: services.Lister(), slices: endpointSlices.Lister()}
	notify := func() {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), endpointSlices.Informer()} {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { notify() },
			UpdateFunc: func(any, any) { notify() },
			DeleteFunc: func(any) { notify() },
		})
		if err != nil {
			return nil, fmt.Errorf("watch services: %w", err)
		}
		s.synced = append(s.synced, registration.HasSynced)
	}
	return s, nil
}

// Run serves DNS on the node's address and on 127.0.0.1, and updates the rules, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var closers []func() error
	defer func() {
		for _, close := range closers {
			_ = close()
		}
	}()
	ended := make(chan error, 4)
	var config net.ListenConfig
	for _, host := range []string{network.NodeAddress.String(), "127.0.0.1"} {
		address := net.JoinHostPort(host, "53")
		udp, err := config.ListenPacket(ctx, "udp4", address)
		if err != nil {
			return fmt.Errorf("serve DNS: %w", err)
		}
		closers = append(closers, udp.Close)
		tcp, err := config.Listen(ctx, "tcp4", address)
		if err != nil {
			return fmt.Errorf("serve DNS: %w", err)
		}
		closers = append(closers, tcp.Close)
		go func() { ended <- s.names.ServeUDP(udp) }()
		go func() { ended <- s.names.ServeTCP(ctx, tcp) }()
	}
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case <-s.changed:
		}
		if err := s.sync(); err != nil {
			return err
		}
	}
}

func (s *Server) sync() error {
	allServices, err := s.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	allSlices, err := s.slices.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list endpoint slices: %w", err)
	}
	forwards, table := PlanRules(allServices, allSlices)
	s.names.Set(table)
	if err := Replace(forwards); err != nil {
		return err
	}
	s.log.Debug("Replaced the rules of services", "ports", len(forwards))
	return nil
}

// PlanRules returns the forwards and the names for all Services and their endpoints. The name of a headless Service has the
// addresses of its pods, and there are no forwards for it.
func PlanRules(allServices []*corev1.Service, allSlices []*discoveryv1.EndpointSlice) ([]Forward, Table) {
	type key struct{ namespace, name string }
	slicesByService := map[key][]*discoveryv1.EndpointSlice{}
	for _, slice := range allSlices {
		if slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		owner := key{slice.Namespace, slice.Labels[discoveryv1.LabelServiceName]}
		slicesByService[owner] = append(slicesByService[owner], slice)
	}
	var forwards []Forward
	table := Table{}
	for _, service := range allServices {
		endpoints := slicesByService[key{service.Namespace, service.Name}]
		name := service.Name + "." + service.Namespace
		address, err := netip.ParseAddr(service.Spec.ClusterIP)
		if err != nil {
			table[name] = endpointAddresses(endpoints, service.Spec.PublishNotReadyAddresses)
			continue
		}
		table[name] = []netip.Addr{address}
		for _, port := range service.Spec.Ports {
			protocol := TCP
			if port.Protocol == corev1.ProtocolUDP {
				protocol = UDP
			}
			forwards = append(forwards, Forward{
				Service:  netip.AddrPortFrom(address, uint16(port.Port)),
				Protocol: protocol,
				Backends: readyEndpoints(endpoints, port.Name),
			})
		}
	}
	slices.SortFunc(forwards, func(a, b Forward) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Protocol, b.Protocol))
	})
	return forwards, table
}

// readyEndpoints returns the ready endpoints of a port. If no endpoint is ready, it returns the terminating endpoints that
// still serve, as kube-proxy does.
func readyEndpoints(endpointSlices []*discoveryv1.EndpointSlice, portName string) []netip.AddrPort {
	var ready, terminating []netip.AddrPort
	for _, slice := range endpointSlices {
		for _, port := range slice.Ports {
			if port.Port == nil || port.Name == nil || *port.Name != portName {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				address, err := firstAddress(endpoint)
				if err != nil {
					continue
				}
				backend := netip.AddrPortFrom(address, uint16(*port.Port))
				switch {
				case isTrue(endpoint.Conditions.Ready):
					ready = append(ready, backend)
				case isTrue(endpoint.Conditions.Serving) && endpoint.Conditions.Terminating != nil && *endpoint.Conditions.Terminating:
					terminating = append(terminating, backend)
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.SortFunc(ready, netip.AddrPort.Compare)
	return slices.Compact(ready)
}

func endpointAddresses(endpointSlices []*discoveryv1.EndpointSlice, includeNotReady bool) []netip.Addr {
	var all []netip.Addr
	for _, slice := range endpointSlices {
		for _, endpoint := range slice.Endpoints {
			address, err := firstAddress(endpoint)
			if err == nil && (includeNotReady || isTrue(endpoint.Conditions.Ready)) {
				all = append(all, address)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

var errNoAddress = errors.New("the endpoint has no address")

func firstAddress(endpoint discoveryv1.Endpoint) (netip.Addr, error) {
	if len(endpoint.Addresses) == 0 {
		return netip.Addr{}, errNoAddress
	}
	return netip.ParseAddr(endpoint.Addresses[0])
}

// isTrue returns the value of a condition of an endpoint. An unknown condition counts as true (EndpointConditions in the API).
func isTrue(condition *bool) bool { return condition == nil || *condition }
