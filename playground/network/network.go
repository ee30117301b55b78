//go:build linux

// Package network gives pods a network: one bridge, and for each pod a network
// namespace of its own with an address on that bridge.
//
// It must not know pods, Services or Kubernetes: only names, addresses and
// processes. It changes the network namespace in which it runs, which must
// belong to the playground alone.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const bridgeName = "serin0"

// Address ranges of pods and Services. They are the ones that Kubernetes guides use most.
var (
	PodRange     = netip.MustParsePrefix("10.244.0.0/16")
	ServiceRange = netip.MustParsePrefix("10.96.0.0/16")
	// NodeAddress is the address of the node: of the bridge, and of all programs outside pods.
	NodeAddress = netip.MustParseAddr("10.244.0.1")
)

// ClusterDomain is the last part of the DNS names of Services.
const ClusterDomain = "cluster.local"

// ResolvConf returns the resolver configuration of programs in a namespace of the cluster, or of programs outside pods with "".
func ResolvConf(namespace string) string {
	search := "svc." + ClusterDomain + " " + ClusterDomain
	if namespace != "" {
		search = namespace + ".svc." + ClusterDomain + " " + search
	}
	return fmt.Sprintf("nameserver %s\nsearch %s\noptions ndots:5\n", NodeAddress, search)
}

// StartLoopback starts the loopback device, which is down in a new network namespace.
func StartLoopback() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("start the loopback device: %w", err)
	}
	return nil
}

// Network is the bridge and the addresses in use.
type Network struct {
	bridge netlink.Link

	mu          sync.Mutex
	lastAddress netip.Addr
	used        map[netip.Addr]bool
}

// New creates the bridge. A network namespace can contain one; Close removes it.
func New() (*Network, error) {
	for _, setting := range []string{"net/ipv4/ip_forward=1", "net/ipv4/conf/all/send_redirects=0", "net/ipv4/conf/default/send_redirects=0"} {
		path, value, _ := strings.Cut(setting, "=")
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0o644); err != nil {
			return nil, fmt.Errorf("enable forwarding between pods and services: %w", err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("add bridge %s: %w", bridgeName, err)
	}
	n := &Network{bridge: bridge, lastAddress: NodeAddress, used: map[netip.Addr]bool{NodeAddress: true}}
	if err := n.configure(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) configure() error {
	if err := netlink.AddrAdd(n.bridge, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(NodeAddress, PodRange.Bits()))}); err != nil {
		return fmt.Errorf("assign address %s to the bridge: %w", NodeAddress, err)
	}
	if err := netlink.LinkSetUp(n.bridge); err != nil {
		return fmt.Errorf("start the bridge: %w", err)
	}
	// Destination addresses of Services are rewritten, but the kernel requires a route before it applies the rules.
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: n.bridge.Attrs().Index, Dst: ipNet(ServiceRange), Src: NodeAddress.AsSlice(),
	}); err != nil {
		return fmt.Errorf("add the route of services: %w", err)
	}
	return nil
}

// Close removes the bridge; namespaces that are still attached lose their network.
func (n *Network) Close() error {
	if err := netlink.LinkDel(n.bridge); err != nil {
		return fmt.Errorf("remove the bridge: %w", err)
	}
	return nil
}

// allocate returns the next free address. A released address is reused as late as possible, because clients may still send
// requests to it.
func (n *Network) allocate() (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	address := n.lastAddress
	for {
		address = address.Next()
		if !PodRange.Contains(address) || !PodRange.Contains(address.Next()) {
			address = NodeAddress
		}
		if !n.used[address] {
			n.lastAddress, n.used[address] = address, true
			return address, nil
		}
		if address == n.lastAddress {
			return netip.Addr{}, fmt.Errorf("allocate an address for a pod: all addresses of %s are in use", PodRange)
		}
	}
}

func (n *Network) release(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, address)
}

// Namespace is the network of one pod.
type Namespace struct {
	// Address is the address of the pod, which is reachable from everywhere in the playground.
	Address netip.Addr

	network *Network
	handle  *os.File
	link    netlink.Link
}

// Namespace creates a network namespace with a new address on the bridge.
func (n *Network) Namespace() (*Namespace, error) {
	address, err := n.allocate()
	if err != nil {
		return nil, err
	}
	ns := &Namespace{Address: address, network: n}
	if ns.handle, err = newNamespace(); err != nil {
		n.release(address)
		return nil, err
	}
	if err := ns.connect(); err != nil {
		return nil, errors.Join(err, ns.Close())
	}
	return ns, nil
}

func (ns *Namespace) connect() error {
	attrs := netlink.NewLinkAttrs()
	octets := ns.Address.As4()
	attrs.Name = fmt.Sprintf("pod%d-%d", octets[2], octets[3])
	attrs.MasterIndex = ns.network.bridge.Attrs().Index
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: "eth0",
		PeerNamespace: netlink.NsFd(ns.handle.Fd()),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect the pod at %s: %w", ns.Address, err)
	}
	ns.link = veth
	// A Service may route a request of a pod to the same pod. If the kernel filters bridged packets too, that packet must
	// leave the bridge through the port on which it arrived, which requires hairpin mode.
	if err := netlink.LinkSetHairpin(veth, true); err != nil {
		return fmt.Errorf("connect the pod at %s: %w", ns.Address, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("connect the pod at %s: %w", ns.Address, err)
	}
	err := ns.runInside(func() error {
		if err := StartLoopback(); err != nil {
			return err
		}
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(eth, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(ns.Address, PodRange.Bits()))}); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(eth); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: NodeAddress.AsSlice()})
	})
	if err != nil {
		return fmt.Errorf("assign address %s to the pod: %w", ns.Address, err)
	}
	return nil
}

// Start starts a command inside the namespace.
func (ns *Namespace) Start(command *exec.Cmd) error {
	return ns.runInside(command.Start)
}

// Close removes the namespace's connection and releases its address. Processes inside continue without a network.
func (ns *Namespace) Close() error {
	defer ns.network.release(ns.Address)
	// The link is deleted first: closing the last handle deletes the namespace, and with it the inner end of the link.
	var err error
	if ns.link != nil {
		err = netlink.LinkDel(ns.link)
	}
	if err = errors.Join(err, ns.handle.Close()); err != nil {
		return fmt.Errorf("disconnect the pod at %s: %w", ns.Address, err)
	}
	return nil
}

// runInside runs f on a thread inside the namespace. A process or socket that f creates belongs to the namespace.
func (ns *Namespace) runInside(f func() error) error {
	return runOnThread(func() error {
		if err := unix.Setns(int(ns.handle.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

func newNamespace() (*os.File, error) {
	var handle *os.File
	err := runOnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create a network namespace: %w", err)
		}
		var err error
		handle, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return handle, err
}

// runOnThread runs f on a thread whose network namespace f may change. Afterwards the thread returns to its namespace. If
// that fails, it stays locked and ends with its goroutine, because other goroutines must not run in the namespace of a pod.
func runOnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		original, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- fmt.Errorf("open the current network namespace: %w", err)
			return
		}
		defer original.Close()
		err = f()
		if unix.Setns(int(original.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
