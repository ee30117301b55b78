#!/usr/bin/env bash
# Writes all generated files: the deep copies of the API types, the CustomResourceDefinitions in config/crd, the parts of the
# chart and the kustomization that follow from these and from the documented permissions, and docs/parity.md.
# It changes nothing if the sources have not changed; `make generate` calls it, and CI checks for a difference.
set -euo pipefail
cd "$(dirname "$0")/.."

# Run by version, so that the tool's dependencies stay out of go.mod.
controller_gen() { go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 "$@"; }

controller_gen object paths=./api/flagger/...
# Floats are part of the API: thresholds have been numbers since its first version.
controller_gen crd:allowDangerousTypes=true paths=./api/flagger/... output:crd:dir=config/crd
go run ./hack/crdversions config/crd

controller_gen object paths=./api/argoproj/...
controller_gen crd:generateEmbeddedObjectMeta=true paths=./api/argoproj/... output:crd:dir=config/crd/argoproj
go run ./hack/crdpods config/crd/argoproj

go run ./hack/packaging/write
go run ./test/parity/write
