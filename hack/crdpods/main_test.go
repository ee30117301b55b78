package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/hack/internal/crdfile"
)

const generated = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations:
    helm.sh/resource-policy: keep
  name: rollouts.argoproj.io
spec:
  group: argoproj.io
  names:
    kind: Rollout
    plural: rollouts
  scope: Namespaced
  versions:
  - name: v1alpha1
    schema:
      openAPIV3Schema:
        description: A Rollout.
        properties:
          replicas:
            description: How many pods.
            minimum: 0
            type: integer
          template:
            description: The pods.
            properties:
              metadata:
                description: Labels and more.
                properties:
                  labels:
                    additionalProperties:
                      type: string
                    type: object
                  name:
                    type: string
                type: object
              spec:
                description: The pod.
                properties:
                  containers:
                    description: At least one.
                    items:
                      properties:
                        ports:
                          items:
                            properties:
                              protocol:
                                default: TCP
                                description: TCP or another one.
                                enum:
                                - TCP
                                type: string
                            type: object
                          type: array
                          x-kubernetes-list-map-keys:
                          - protocol
                          x-kubernetes-list-type: map
                        resources:
                          properties:
                            limits:
                              additionalProperties:
                                anyOf:
                                - type: integer
                                - type: string
                                pattern: ^[0-9]+$
                                x-kubernetes-int-or-string: true
                              type: object
                            requests:
                              type: object
                          type: object
                        targetPort:
                          anyOf:
                          - type: integer
                          - type: string
                          x-kubernetes-int-or-string: true
                      required:
                      - ports
                      type: object
                    type: array
                  volumes:
                    items:
                      type: object
                    type: array
                required:
                - containers
                type: object
            type: object
        type: object
    served: true
    storage: true
`

const lenientSchema = `
description: A Rollout.
properties:
  replicas:
    description: How many pods.
    minimum: 0
    type: integer
  template:
    description: The pods.
    properties:
      metadata:
        description: Labels and more.
        properties:
          labels:
            additionalProperties:
              type: string
            type: object
        type: object
      spec:
        properties:
          containers:
            items:
              properties:
                ports:
                  items:
                    properties:
                      protocol:
                        default: TCP
                        type: string
                    type: object
                  type: array
                resources:
                  properties:
                    limits:
                      x-kubernetes-preserve-unknown-fields: true
                    requests:
                      x-kubernetes-preserve-unknown-fields: true
                  type: object
                targetPort:
                  x-kubernetes-int-or-string: true
              required:
              - ports
              type: object
            type: array
          volumes:
            x-kubernetes-preserve-unknown-fields: true
        required:
        - containers
        type: object
    type: object
type: object
`

func TestPodsRetainTypesAndDefaultsWithoutOtherRules(t *testing.T) {
	text, err := crdfile.Changed([]byte(generated), lenient)
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema any `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	var want any
	if err := yaml.Unmarshal([]byte(lenientSchema), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, definition.Spec.Versions[0].Schema.OpenAPIV3Schema); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestRewriteTwiceChangesNothing(t *testing.T) {
	directory := t.TempDir()
	path := filepath.Join(directory, "argoproj.io_rollouts.yaml")
	if err := os.WriteFile(path, []byte(generated), 0o600); err != nil {
		t.Fatal(err)
	}
	var written []string
	for range 2 {
		if err := rewriteAll(directory); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, string(text))
	}
	if diff := cmp.Diff(written[0], written[1]); diff != "" {
		t.Errorf("second time (-first +second):\n%s", diff)
	}
}

func TestInvalidDefinitionsAreRefused(t *testing.T) {
	for _, definition := range []string{"spec: [", "what: ever"} {
		if text, err := crdfile.Changed([]byte(definition), lenient); err == nil {
			t.Errorf("got\n%s\nwant an error for\n%s", text, definition)
		}
	}
	if err := rewriteAll(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no definitions") {
		t.Errorf("got %v for a folder without definitions, want an error", err)
	}
}
