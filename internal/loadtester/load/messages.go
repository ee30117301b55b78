package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// The limits of the descriptors of messages. Decoded, descriptors need up to 125 times their size, and the server under test
// chooses the content of those that are requested by reflection.
const (
	maxFiles      = 500
	maxReflection = 1 << 20
	maxProtoset   = 16 << 20
)

// readMessages returns the request messages of a call whose path is /package.Service/Method. data is a JSON object or a
// list of objects. Their type is read from a file of descriptors or requested from the server.
func readMessages(ctx context.Context, conn *grpc.ClientConn, path, data, protoset string) ([]proto.Message, error) {
	if strings.TrimSpace(data) == "" || strings.Join(strings.Fields(data), "") == "{}" {
		return []proto.Message{&emptypb.Empty{}}, nil
	}
	objects, err := readObjects(data)
	if err != nil {
		return nil, err
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	files, err := readDescriptors(ctx, conn, service, protoset)
	if err != nil {
		return nil, err
	}
	input, err := requestType(files, service, method)
	if err != nil {
		return nil, err
	}
	var all []proto.Message
	for _, object := range objects {
		message := dynamicpb.NewMessage(input)
		if err := (protojson.UnmarshalOptions{Resolver: dynamicpb.NewTypes(files)}).Unmarshal(object, message); err != nil {
			return nil, fmt.Errorf("data (-d) is not a message %s: %w", input.FullName(), err)
		}
		all = append(all, message)
	}
	return all, nil
}

func readObjects(data string) ([]json.RawMessage, error) {
	raw := bytes.TrimSpace([]byte(data))
	if raw[0] != '[' {
		return []json.RawMessage{raw}, nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil || len(all) == 0 {
		return nil, errors.New(`data (-d) is written as '{"name":"value"}', or as a list of such objects`)
	}
	return all, nil
}

// readDescriptors returns the descriptors of a service, from the file protoset or else from the server.
func readDescriptors(ctx context.Context, conn *grpc.ClientConn, service, protoset string) (*protoregistry.Files, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if protoset == "" {
		files, err := requestDescriptors(ctx, conn, service)
		if err != nil {
			return nil, err
		}
		set.File = files
	} else if err := readProtoset(protoset, set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("the descriptors of %s do not fit together: %w", service, err)
	}
	return files, nil
}

func readProtoset(name string, set *descriptorpb.FileDescriptorSet) error {
	info, err := os.Stat(name)
	if err != nil {
		return fmt.Errorf("read --protoset: %w", err)
	}
	if info.Size() > maxProtoset {
		return fmt.Errorf("read --protoset: %s has more than %d bytes", name, maxProtoset)
	}
	raw, err := os.ReadFile(name) //nolint:gosec // the user who starts a load test names the file
	if err != nil {
		return fmt.Errorf("read --protoset: %w", err)
	}
	if err := proto.Unmarshal(raw, set); err != nil {
		return errors.New("read --protoset: not a set of descriptors: create it with protoc --include_imports --descriptor_set_out")
	}
	return nil
}

func requestType(files *protoregistry.Files, service, method string) (protoreflect.MessageDescriptor, error) {
	found, err := files.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("the descriptors do not contain the service %s", service)
	}
	described, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a service", service)
	}
	call := described.Methods().ByName(protoreflect.Name(method))
	switch {
	case call == nil:
		return nil, fmt.Errorf("the service %s has no method %s", service, method)
	case call.IsStreamingClient() || call.IsStreamingServer():
		return nil, fmt.Errorf("%s is a stream: use an image with ghz itself", call.FullName())
	default:
		return call.Input(), nil
	}
}

// reflectionMethods are the methods of server reflection, the newer one first. Their messages are the same.
var reflectionMethods = []string{
	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
}

// requestDescriptors requests the descriptors of a service, and of all imported files, from the server.
func requestDescriptors(ctx context.Context, conn *grpc.ClientConn, service string) ([]*descriptorpb.FileDescriptorProto, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the stream
	for _, method := range reflectionMethods {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.MaxCallRecvMsgSize(maxReflection))
		if err != nil {
			return nil, fmt.Errorf("request the descriptors: %w", err)
		}
		files, err := receiveDescriptors(stream, service)
		if status.Code(err) != codes.Unimplemented {
			return files, err
		}
	}
	return nil, errors.New("the server does not describe itself by reflection: give its descriptors with --protoset")
}

func receiveDescriptors(stream grpc.ClientStream, service string) ([]*descriptorpb.FileDescriptorProto, error) {
	var all []*descriptorpb.FileDescriptorProto
	known, size := map[string]bool{}, 0
	name, request := service, &reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
	}
	for {
		response := &reflectionv1.ServerReflectionResponse{}
		_ = stream.SendMsg(request) // RecvMsg returns the reason if it fails
		if err := stream.RecvMsg(response); status.Code(err) == codes.ResourceExhausted {
			return nil, fmt.Errorf("request the descriptors: %w: give them with --protoset", err)
		} else if err != nil {
			return nil, fmt.Errorf("request the descriptors: %w", err)
		}
		if size += proto.Size(response); size > maxReflection {
			return nil, fmt.Errorf("the descriptors of the server have more than %d bytes: give those of %s with --protoset", maxReflection, service)
		}
		files, err := readFiles(response, name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if !known[file.GetName()] {
				known[file.GetName()] = true
				all = append(all, file)
			}
		}
		missing := missingImport(all, known)
		switch {
		case missing == "":
			return all, nil
		case len(all) >= maxFiles, missing == name:
			return nil, fmt.Errorf("the server does not describe %s, which %s needs", missing, service)
		}
		name, request = missing, &reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: missing},
		}
	}
}

// missingImport returns the name of an imported file that is not known; empty if there is none.
func missingImport(files []*descriptorpb.FileDescriptorProto, known map[string]bool) string {
	for _, file := range files {
		for _, name := range file.GetDependency() {
			if !known[name] {
				return name
			}
		}
	}
	return ""
}

// readFiles reads the response to a request for the descriptors of a name.
func readFiles(response *reflectionv1.ServerReflectionResponse, name string) ([]*descriptorpb.FileDescriptorProto, error) {
	if response.GetErrorResponse() != nil {
		return nil, fmt.Errorf("the server does not describe %s", name)
	}
	var files []*descriptorpb.FileDescriptorProto
	for _, encoded := range response.GetFileDescriptorResponse().GetFileDescriptorProto() {
		file := &descriptorpb.FileDescriptorProto{}
		if proto.Unmarshal(encoded, file) != nil {
			return nil, errors.New("the server described itself in a way that cannot be read")
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		return nil, errors.New("the server described itself in a way that cannot be read")
	}
	return files, nil
}
