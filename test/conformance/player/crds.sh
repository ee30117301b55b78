#!/usr/bin/env bash
# crds.sh DIR writes the CustomResourceDefinitions of the providers to DIR: the real ones if a Go module contains them
# (downloaded with the go command), open schemas otherwise. It does not write those of flagger.app.
set -euo pipefail
out=$1
rm -rf "$out"
mkdir -p "$out"
nowhere=$(mktemp -d) # outside of any module
trap 'rm -rf "$nowhere"' EXIT
mod() { # module@version path... : copies files of a module
  local dir
  dir=$(cd "$nowhere" && GOFLAGS=-mod=mod go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  shift
  local f
  for f in "$@"; do cp "$dir/$f" "$out/$(basename "${dir%@*}")-$(basename "$f")"; done
}
g=config/crd/experimental/gateway.networking.k8s.io_
mod sigs.k8s.io/gateway-api@v1.4.1 ${g}httproutes.yaml ${g}gateways.yaml
mod istio.io/api@v1.31.1 kubernetes/customresourcedefinitions.gen.yaml
mod github.com/projectcontour/contour@v1.33.8 examples/contour/01-crds.yaml
mod github.com/traefik/traefik/v3@v3.6.12 docs/content/reference/dynamic-configuration/traefik.io_traefikservices.yaml
mod knative.dev/serving@v0.51.0 config/core/300-resources/service.yaml config/core/300-resources/revision.yaml
mod github.com/kedacore/keda/v2@v2.21.0 config/crd/bases/keda.sh_scaledobjects.yaml
chmod -R u+w "$out"

open() { # kind group plural scope versions..., the last one stored
  local kind=$1 group=$2 plural=$3 scope=$4 v
  shift 4
  cat <<C
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $plural.$group}
spec:
  group: $group
  scope: $scope
  names: {kind: $kind, plural: $plural, singular: ${kind,,}}
  versions:
C
  for v; do
    echo "  - {name: $v, served: true, storage: $([ "$v" = "${!#}" ] && echo true || echo false), schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}"
  done
}
{
  open TrafficSplit split.smi-spec.io trafficsplits Namespaced v1alpha1 v1alpha2 v1alpha3
  open RouteTable gateway.solo.io routetables Namespaced v1
  open Upstream gloo.solo.io upstreams Namespaced v1
  open TrafficRoute kuma.io trafficroutes Cluster v1alpha1
  open ApisixRoute apisix.apache.org apisixroutes Namespaced v2
  open VirtualNode appmesh.k8s.aws virtualnodes Namespaced v1beta1 v1beta2
  open VirtualService appmesh.k8s.aws virtualservices Namespaced v1beta1 v1beta2
  open VirtualRouter appmesh.k8s.aws virtualrouters Namespaced v1beta2
} > "$out/open.yaml"
