#!/usr/bin/env bash
# Publishes the image and the chart that `make release` has built in dist/, or the folder in DIST, to REGISTRY, and signs
# both and the checksums. The release workflow calls it, with an identity of its own instead of a key. Tests publish to a
# registry on this machine, with COSIGN_FLAGS for a temporary key and HELM_FLAGS for HTTP.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/release/tools.sh

number=${1#v}
registry=${REGISTRY:?set REGISTRY, such as ghcr.io/serin-dev}
dist=${DIST:-dist}
read -ra cosign_flags <<<"--yes ${COSIGN_FLAGS:-}"
read -ra helm_flags <<<"${HELM_FLAGS:-}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$dist" && sha256sum --check --quiet checksums.txt)

# The digest is signed, because a tag could be moved between the push and the signature.
tar -x -f "$dist/serin-image_$number.tar" --directory "$work"
image=$(crane push "$work" "$registry/serin:$number")
cosign sign "${cosign_flags[@]}" --recursive "$image"
for platform in linux/amd64 linux/arm64; do
	digest=$(crane digest --platform "$platform" "$image")
	cosign attest "${cosign_flags[@]}" --type cyclonedx --predicate "$dist/serin_${number}_${platform/\//_}.cdx.json" "$registry/serin@$digest"
done

helm push "${helm_flags[@]}" "$dist/serin-$number.tgz" "oci://$registry/charts"
cosign sign "${cosign_flags[@]}" "$registry/charts/serin@$(crane digest "$registry/charts/serin:$number")"

cosign sign-blob "${cosign_flags[@]}" --bundle "$dist/checksums.txt.sigstore.json" "$dist/checksums.txt" >/dev/null
echo "$image"
