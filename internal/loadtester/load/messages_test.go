package load_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	older "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// recordedChecks records the services whose health was requested.
type recordedChecks struct {
	mu       sync.Mutex
	services []string
}

// newHealthServer starts a real gRPC server; describe registers its reflection.
func newHealthServer(t *testing.T, describe ...func(*grpc.Server)) (*recordedChecks, string) {
	t.Helper()
	h := &recordedChecks{}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if check, ok := request.(*healthv1.HealthCheckRequest); ok {
			h.mu.Lock()
			h.services = append(h.services, check.GetService())
			h.mu.Unlock()
		}
		return next(ctx, request)
	}))
	state := health.NewServer()
	state.SetServingStatus("cart", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(server, state)
	for _, each := range describe {
		each(server)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return h, listener.Addr().String()
}

func registerReflection(s *grpc.Server) { reflection.Register(s) }

// writeProtoset writes a file with the descriptors of the health service and returns its path.
func writeProtoset(t *testing.T) string {
	t.Helper()
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(healthv1.File_grpc_health_v1_health_proto),
	}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "health.protoset")
	if err := os.WriteFile(name, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestGhzEncodesMessagesByDescriptors(t *testing.T) {
	for name, c := range map[string]struct {
		describe func(*grpc.Server)
		args     []string
		services []string
		prints   string
	}{
		"reflection":  {registerReflection, []string{"-d", `{"service":"cart"}`}, []string{"cart", "cart", "cart", "cart"}, "[OK]\t4 responses"},
		"round-robin": {registerReflection, []string{"-d", `[{"service":"cart"},{"service":"other"}]`}, []string{"cart", "cart", "other", "other"}, "[NotFound]\t2 responses"},
		"v1alpha reflection": {func(s *grpc.Server) {
			older.RegisterServerReflectionServer(s, reflection.NewServer(reflection.ServerOptions{Services: s}))
		}, []string{"-d", `{"service":"cart"}`}, []string{"cart", "cart", "cart", "cart"}, "[OK]"},
		"protoset":          {func(*grpc.Server) {}, []string{"-d", `{"service":"cart"}`, "--protoset", writeProtoset(t)}, []string{"cart", "cart", "cart", "cart"}, "[OK]"},
		"empty message":     {func(*grpc.Server) {}, []string{"-d", "{ }"}, []string{"", "", "", ""}, "[OK]"},
		"dot before method": {registerReflection, []string{"-d", `{"service":"cart"}`, "--call", "grpc.health.v1.Health.Check"}, []string{"cart", "cart", "cart", "cart"}, "[OK]"},
	} {
		t.Run(name, func(t *testing.T) {
			h, address := newHealthServer(t, c.describe)
			out, err := run(t.Context(), allowLoopback, slices.Concat([]string{"ghz", "--insecure", "-n", "4", "-c", "1"}, c.args, []string{address})...)
			if err != nil || !strings.Contains(out, c.prints) {
				t.Errorf("%v, want %q in\n%s", err, c.prints, out)
			}
			slices.Sort(h.services)
			if !slices.Equal(h.services, c.services) {
				t.Errorf("requested %q, want %q", h.services, c.services)
			}
		})
	}
}

// TestGhzBoundsDescriptors: decoded, descriptors need many times their size, and the server under test chooses their content.
func TestGhzBoundsDescriptors(t *testing.T) {
	const half = 512<<10 + 1
	describe := func(sizes ...int) func(*grpc.Server) {
		return func(s *grpc.Server) { reflectionv1.RegisterServerReflectionServer(s, &hugeReflection{sizes: sizes}) }
	}
	for name, c := range map[string]struct {
		sizes []int
		want  string
	}{
		"one response":      {[]int{2 * half}, "larger than max"},
		"several responses": {[]int{half, half}, "the descriptors of the server have more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := newHealthServer(t, describe(c.sizes...))
			_, err := run(t.Context(), allowLoopback, "ghz", "--insecure", "-n", "1", "-c", "1", "-d", `{"service":"cart"}`, address)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "with --protoset") {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// hugeReflection answers each request with one file of that size, which imports the next one.
type hugeReflection struct {
	reflectionv1.UnimplementedServerReflectionServer

	sizes []int
}

func (h *hugeReflection) ServerReflectionInfo(stream grpc.BidiStreamingServer[reflectionv1.ServerReflectionRequest, reflectionv1.ServerReflectionResponse]) error {
	for i, size := range h.sizes {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		file, err := proto.Marshal(&descriptorpb.FileDescriptorProto{
			Name: new(fmt.Sprint(i)), Dependency: []string{fmt.Sprint(i + 1)}, MessageType: slices.Repeat([]*descriptorpb.DescriptorProto{{}}, size/2),
		})
		if err != nil {
			return err
		}
		if err := stream.Send(&reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_FileDescriptorResponse{
			FileDescriptorResponse: &reflectionv1.FileDescriptorResponse{FileDescriptorProto: [][]byte{file}},
		}}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// TestGhzBoundsResponses: all workers together must not need more memory than the load tester has.
func TestGhzBoundsResponses(t *testing.T) {
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		request := &emptypb.Empty{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		return stream.SendMsg(wrapperspb.Bytes(make([]byte, 512<<10)))
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	for workers, want := range map[string]string{"1": "[OK]\t300 responses", "300": "[ResourceExhausted]\t300 responses"} {
		out, err := run(t.Context(), allowLoopback, "ghz", "--insecure", "-n", "300", "-c", workers, "--call", "a.B/C", listener.Addr().String())
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s workers: %v, want %q in\n%s", workers, err, want, out)
		}
	}
}

func TestGhzReportsWhyItCannotSend(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"the server does not describe a.B":                             {"--call", "a.B/C", "-d", `{"a":1}`},
		"the service grpc.health.v1.Health has no method No":           {"--call", "grpc.health.v1.Health/No", "-d", `{"a":1}`},
		"grpc.health.v1.Health.Watch is a stream":                      {"--call", "grpc.health.v1.Health/Watch", "-d", `{"a":1}`},
		"data (-d) is not a message grpc.health.v1.HealthCheckRequest": {"-d", `{"wrong":1}`},
		"data (-d) is written as":                                      {"-d", `[]`},
		"is not a service":                                             {"--call", "grpc.health.v1.HealthCheckRequest/X", "-d", `{"a":1}`},
		"not a set of descriptors":                                     {"-d", `{"a":1}`, "--protoset", broken},
		"no such file":                                                 {"-d", `{"a":1}`, "--protoset", broken + "-2"},
		"the descriptors do not contain the service a.B":               {"--call", "a.B/C", "-d", `{"a":1}`, "--protoset", writeProtoset(t)},
	} {
		_, address := newHealthServer(t, registerReflection)
		_, err := run(t.Context(), allowLoopback, slices.Concat([]string{"ghz", "--insecure", "-n", "1"}, args, []string{address})...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	_, address := newHealthServer(t)
	if _, err := run(t.Context(), allowLoopback, "ghz", "--insecure", "-d", `{"service":"cart"}`, address); err == nil || !strings.Contains(err.Error(), "give its descriptors with --protoset") {
		t.Errorf("without reflection: %v", err)
	}
}
