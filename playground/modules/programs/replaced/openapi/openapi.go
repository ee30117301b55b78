// Package v1 replaces the description of Prometheus' API as OpenAPI, which is a part of its package
// web/api/v1.
//
// The original links a library whose generic types take longer to compile than the rest of the package, and the playground
// does not use the description. The package must declare what Prometheus uses of these files, and nothing else.
package v1

import (
	"log/slog"
	"net/http"
)

// OpenAPIOptions are the options of the description, which have no effect.
type OpenAPIOptions struct {
	IncludePaths   []string
	ExternalURL    string
	Version        string
	MaxSearchLimit int
}

// OpenAPIBuilder describes nothing.
type OpenAPIBuilder struct{}

// NewOpenAPIBuilder returns a builder.
func NewOpenAPIBuilder(OpenAPIOptions, *slog.Logger) *OpenAPIBuilder { return &OpenAPIBuilder{} }

// WrapHandler returns the handler.
func (*OpenAPIBuilder) WrapHandler(next http.HandlerFunc) http.HandlerFunc { return next }

// ServeOpenAPI answers that there is no description.
func (*OpenAPIBuilder) ServeOpenAPI(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "the Prometheus of the playground is built without OpenAPI", http.StatusNotImplemented)
}
