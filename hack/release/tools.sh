# shellcheck shell=bash
# The tools of releases, for scripts and tests to source. They are run by version, so that their dependencies stay out of
# go.mod; Go keeps the built programs in its cache.
cosign() { go run github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5 "$@"; }
crane() { go run github.com/google/go-containerregistry/cmd/crane@v0.22.1 "$@"; }
cyclonedx() { go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 "$@"; }
helm() { go run helm.sh/helm/v4/cmd/helm@v4.3.1 "$@"; }
validate_krew() { go run sigs.k8s.io/krew/cmd/validate-krew-manifest@v0.4.3 "$@"; }
actionlint() { go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 "$@"; }
