package load

import (
	"strings"
	"testing"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// FuzzReflection decodes arbitrary reflection responses and data. They are accepted or refused, without a panic.
func FuzzReflection(f *testing.F) {
	file, err := proto.Marshal(protodesc.ToFileDescriptorProto(healthv1.File_grpc_health_v1_health_proto))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0x22, 0x00}, `{"service":"x"}`)
	f.Add([]byte{0x3a, 0x02, 0x08, 0x05}, `[]`)
	inner := append([]byte{0x0a, byte(len(file)), 0x03}, file...)
	f.Add(inner, `[{"service":"x"}, 1]`)
	f.Fuzz(func(t *testing.T, answer []byte, data string) {
		response := &reflectionv1.ServerReflectionResponse{}
		if proto.Unmarshal(answer, response) != nil {
			return
		}
		files, err := readFiles(response, "a.B")
		if err == nil && len(files) == 0 {
			t.Error("got neither a file nor an error")
		}
		if set, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: files}); err == nil {
			_, _ = requestType(set, "a.B", "C")
		}
		if strings.TrimSpace(data) != "" {
			_, _ = readObjects(data)
		}
	})
}
