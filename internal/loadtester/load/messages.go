package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Bounds of what describes messages.
const (
	maxFiles    = 500
	maxProtoset = 16 << 20
)

// reflections are the methods by which servers describe themselves, the newer one first. Both speak the same words.
var reflections = []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}

// unimplemented is the code of a server that does not have a method.
const unimplemented = 12

// messages are those of a call whose path is /package.Service/Method, as they are sent: data is a JSON object, or a list of
// them that are sent in turn. What they mean is in a file of descriptors, or asked of the server itself.
func messages(ctx context.Context, p *peer, path, data, protoset string) ([][]byte, error) {
	if strings.TrimSpace(data) == "" || strings.Join(strings.Fields(data), "") == "{}" {
		return [][]byte{nil}, nil
	}
	objects, err := readObjects(data)
	if err != nil {
		return nil, err
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	files, err := described(ctx, p, service, protoset)
	if err != nil {
		return nil, err
	}
	input, err := inputOf(files, service, method)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, object := range objects {
		message := dynamicpb.NewMessage(input)
		if err := (protojson.UnmarshalOptions{Resolver: dynamicpb.NewTypes(files)}).Unmarshal(object, message); err != nil {
			return nil, fmt.Errorf("data (-d) are no message %s: %w", input.FullName(), err)
		}
		encoded, err := proto.Marshal(message)
		if err != nil {
			return nil, fmt.Errorf("write message %s: %w", input.FullName(), err)
		}
		all = append(all, encoded)
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
		return nil, errors.New(`data (-d) are written as '{"name":"value"}', or as a list of such`)
	}
	return all, nil
}

// described are the descriptors that say what a service takes.
func described(ctx context.Context, p *peer, service, protoset string) (*protoregistry.Files, error) {
	set := &descriptorpb.FileDescriptorSet{}
	if protoset == "" {
		files, err := reflected(ctx, p, service)
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
	raw, err := os.ReadFile(name) //nolint:gosec // whoever starts a load test names the file
	if err != nil {
		return fmt.Errorf("read --protoset: %w", err)
	}
	if err := proto.Unmarshal(raw, set); err != nil {
		return errors.New("read --protoset: it is no set of descriptors: make it with protoc --include_imports --descriptor_set_out")
	}
	return nil
}

func inputOf(files *protoregistry.Files, service, method string) (protoreflect.MessageDescriptor, error) {
	found, err := files.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("nothing describes the service %s", service)
	}
	described, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no service", service)
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

// The numbers of the fields of the questions and answers of reflection.
const (
	askFile, askSymbol       = 3, 4
	answerFiles, answerError = 4, 7
	filesOfAnswer            = 1
)

// reflected asks a server for the descriptors of a service, and for all that these import.
func reflected(ctx context.Context, p *peer, service string) ([]*descriptorpb.FileDescriptorProto, error) {
	known := map[string]*descriptorpb.FileDescriptorProto{}
	question, text := protowire.Number(askSymbol), service
	var order []*descriptorpb.FileDescriptorProto
	for {
		files, err := inquire(ctx, p, question, text)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if known[file.GetName()] == nil {
				known[file.GetName()] = file
				order = append(order, file)
			}
		}
		missing := missingImport(order, known)
		switch {
		case missing == "":
			return order, nil
		case len(order) >= maxFiles, question == askFile && missing == text:
			return nil, fmt.Errorf("the server does not describe %s, which %s needs", missing, service)
		}
		question, text = askFile, missing
	}
}

// missingImport is the name of a file that is imported and not known; empty: there is none.
func missingImport(files []*descriptorpb.FileDescriptorProto, known map[string]*descriptorpb.FileDescriptorProto) string {
	for _, file := range files {
		for _, name := range file.GetDependency() {
			if known[name] == nil {
				return name
			}
		}
	}
	return ""
}

// inquire asks one question. The call is a stream; one question and its end are a call like any other.
func inquire(ctx context.Context, p *peer, question protowire.Number, text string) ([]*descriptorpb.FileDescriptorProto, error) {
	message := protowire.AppendString(protowire.AppendTag(nil, question, protowire.BytesType), text)
	for i, method := range reflections {
		answer, code, err := p.call(ctx, method, message)
		switch {
		case err != nil:
			return nil, fmt.Errorf("ask the server what it takes: %w", err)
		case code == unimplemented && i+1 < len(reflections):
			continue
		case code == unimplemented:
			return nil, errors.New("the server does not describe itself by reflection: give its descriptors with --protoset")
		case code != 0:
			return nil, fmt.Errorf("ask the server what it takes: it answered %s", codeName(code))
		default:
			return readReflection(answer, text)
		}
	}
	return nil, nil // there is at least one method
}

var errReflection = errors.New("the server described itself in a way that cannot be read")

func readReflection(answer []byte, asked string) ([]*descriptorpb.FileDescriptorProto, error) {
	fields, err := messageFields(answer)
	if err != nil {
		return nil, err
	}
	for _, field := range fields {
		if field.number == answerError {
			return nil, fmt.Errorf("the server does not know %s", asked)
		}
	}
	var files []*descriptorpb.FileDescriptorProto
	for _, field := range fields {
		if field.number != answerFiles {
			continue
		}
		inner, err := messageFields(field.value)
		if err != nil {
			return nil, err
		}
		for _, each := range inner {
			if each.number != filesOfAnswer {
				continue
			}
			file := &descriptorpb.FileDescriptorProto{}
			if proto.Unmarshal(each.value, file) != nil {
				return nil, errReflection
			}
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, errReflection
	}
	return files, nil
}

// field is one of a message that holds bytes.
type field struct {
	number protowire.Number
	value  []byte
}

// messageFields are the fields of a message that hold bytes; others are left out.
func messageFields(message []byte) ([]field, error) {
	var all []field
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, errReflection
		}
		message = message[n:]
		if kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return nil, errReflection
			}
			all, message = append(all, field{number, value}), message[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return nil, errReflection
		}
		message = message[n:]
	}
	return all, nil
}
