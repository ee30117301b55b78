package apiproxy

import (
	"net"
	"sync"
)

// connections are the connections of the proxy's clients, which can be reset or partitioned from the proxy.
type connections struct {
	net.Listener

	mu   sync.Mutex
	open map[*connection]bool
	// partition is closed when the current partition ends; nil: there is none.
	partition chan struct{}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &connection{Conn: accepted, all: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = true
	return conn, nil
}

// reset closes all connections without the usual end of a TCP connection: clients receive RST.
func (c *connections) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if tcp, ok := conn.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // without it, the connection ends in the usual way
		}
		_ = conn.Conn.Close() // it may be closed already
	}
}

func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partition == nil {
		c.partition = make(chan struct{})
	}
}

// heal ends a partition. Bytes that were sent during the partition are lost with their connections.
func (c *connections) heal() {
	c.reset()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partition != nil {
		close(c.partition)
		c.partition = nil
	}
}

// waitForHeal returns immediately, or at the end of the current partition. It reports whether there was one.
func (c *connections) waitForHeal() bool {
	c.mu.Lock()
	partition := c.partition
	c.mu.Unlock()
	if partition == nil {
		return false
	}
	<-partition
	return true
}

// connection transfers nothing during a partition, and fails afterwards.
type connection struct {
	net.Conn
	all *connections
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.all.waitForHeal() && err == nil {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	if c.all.waitForHeal() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
