package service

import (
	"io"
	"net"
)

// limitedConn is a connection from which at most remaining bytes can be read, for libraries that read a line without a limit.
type limitedConn struct {
	net.Conn
	remaining int
}

func (c *limitedConn) Read(into []byte) (int, error) {
	if c.isExhausted() {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Conn.Read(into[:min(len(into), c.remaining)])
	c.remaining -= n
	return n, err
}

// isExhausted reports whether no more can be read. It must not be called during a Read.
func (c *limitedConn) isExhausted() bool { return c.remaining <= 0 }
