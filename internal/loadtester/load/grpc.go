package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxMessage is how many bytes of an answer are read.
const maxMessage = 4 << 20

// healthMethod is what every gRPC server has that has health.
const healthMethod = "/grpc.health.v1.Health/Check"

// peer is a gRPC server. Unary calls are what HTTP/2 does with a length before the message and the status in a trailer,
// so a client library is not needed, whose initialisation the controller would pay for in memory.
type peer struct {
	client *http.Client
	// base is the address without a path; authority is what the server is called, where that is not its address.
	base      *url.URL
	authority string
	metadata  http.Header
}

// security is how a connection is made.
type security struct {
	plaintext, skipVerify bool
	serverName            string
}

func newPeer(o Options, address string, s security) (*peer, error) {
	address = strings.TrimPrefix(address, "dns:///")
	base, err := url.Parse("https://" + address)
	if err != nil || base.Hostname() == "" || base.Port() == "" || base.Path != "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("the address of a gRPC server is written as host:port")
	}
	t := &http.Transport{
		DialContext: o.Policy.Dialer().DialContext,
		Protocols:   new(http.Protocols),
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, ServerName: s.serverName,
			InsecureSkipVerify: s.skipVerify, //nolint:gosec // there is a flag for it
		},
	}
	if s.plaintext {
		base.Scheme = "http"
		t.Protocols.SetUnencryptedHTTP2(true)
	} else {
		t.Protocols.SetHTTP2(true)
	}
	return &peer{client: &http.Client{Transport: t}, base: base, metadata: http.Header{}}, nil
}

func (p *peer) close() { p.client.CloseIdleConnections() }

// call makes a unary call. The code is the status of the server, or what a client says in its place.
func (p *peer) call(ctx context.Context, method string, message []byte) (answer []byte, code int, err error) {
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) //nolint:gosec // as long as maxData at most
	frame = append(frame, message...)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base.JoinPath(method).String(), bytes.NewReader(frame))
	if err != nil {
		return nil, 0, err
	}
	request.Header = p.metadata.Clone()
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	request.Header.Set("User-Agent", "grpc-serin")
	request.Host = p.authority
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline), 0) //nolint:forbidigo // contexts live by the real clock
		request.Header.Set("Grpc-Timeout", strconv.FormatInt(min(left.Milliseconds()+1, 99_999_999), 10)+"m")
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, 0, withoutURL(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
	if err != nil {
		return nil, 0, withoutURL(err)
	}
	return readAnswer(response, body)
}

// readAnswer finds status and message of an answer that was read to its end, where the trailers are.
func readAnswer(response *http.Response, body []byte) (answer []byte, code int, err error) {
	trailer := response.Trailer
	if trailer.Get("Grpc-Status") == "" {
		trailer = response.Header // a call that has no message but its status has one block of headers
	}
	status := trailer.Get("Grpc-Status")
	if status == "" {
		return nil, 0, fmt.Errorf("this is no answer of a gRPC server: %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	}
	if code, err = strconv.Atoi(status); err != nil {
		return nil, 0, errors.New("the server answered a status that is no number")
	}
	if code != 0 {
		return nil, code, nil
	}
	if len(body) < 5 || body[0] != 0 || int64(binary.BigEndian.Uint32(body[1:])) != int64(len(body)-5) {
		return nil, code, errors.New("the server answered no message that can be read")
	}
	return body[5:], code, nil
}

// codeName is the name of a status code of gRPC, as load tests print it.
func codeName(code int) string {
	names := []string{
		"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
		"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
		"DataLoss", "Unauthenticated",
	}
	if code < 0 || code >= len(names) {
		return "code " + strconv.Itoa(code)
	}
	return names[code]
}

// healthRequest asks for the health of a service; of the server where it is empty.
func healthRequest(service string) []byte {
	if service == "" {
		return nil
	}
	return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), service)
}

// healthStatus reads the answer: 1 is serving.
func healthStatus(message []byte) (string, error) {
	status := uint64(0)
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return "", errors.New("the answer about health cannot be read")
		}
		message = message[n:]
		if number == 1 && kind == protowire.VarintType {
			status, n = protowire.ConsumeVarint(message)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return "", errors.New("the answer about health cannot be read")
		}
		message = message[n:]
	}
	switch status {
	case 1:
		return "SERVING", nil
	case 2:
		return "NOT_SERVING", nil
	case 3:
		return "SERVICE_UNKNOWN", nil
	default:
		return "UNKNOWN", nil
	}
}
