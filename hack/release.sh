#!/usr/bin/env bash
# Builds what a release consists of into dist/, or the folder in DIST, and publishes nothing: the archives of the binaries,
# the image as an OCI layout, an SBOM for each binary, the chart, the krew manifest, and the checksums of all these.
#
# It builds the commit HEAD in a clone, never the working tree: the Go toolchain then records the version and the revision
# in the binaries, and the result does not depend on files that are not committed. The same commit, version and Go
# toolchain result in the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."

. hack/release/tools.sh

version=${1:-}
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "make release needs a version such as VERSION=v0.1.0, not \"$version\"" >&2
	exit 1
fi
tagged=$(git rev-parse --quiet --verify "refs/tags/$version^{commit}" || true)
if [ -n "$tagged" ] && [ "$tagged" != "$(git rev-parse HEAD)" ]; then
	echo "$version is the tag of another commit: check it out, or choose a new version" >&2
	exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
	echo "The release contains the commit $(git rev-parse --short HEAD), without your uncommitted changes." >&2
fi

# build is go build without the settings of the user that change the built programs.
build() {
	GOFLAGS='' GOWORK=off GOEXPERIMENT='' GOAMD64=v1 GOARM64=v8.0 CGO_ENABLED=0 go build "$@"
}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

number=${version#v} # archives, images and charts have no v
dist=${DIST:-dist}
rm -rf "$dist"
mkdir -p "$dist"
dist=$(realpath "$dist")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet --no-tags . "$work/source"
git -C "$work/source" tag "$version"
find "$work/source" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)
for platform in "${platforms[@]}"; do
	name=serin_${number}_${platform/\//_}
	echo "=== $name"
	mkdir "$work/$name"
	GOOS=${platform%/*} GOARCH=${platform#*/} build -C "$work/source" -buildvcs=true -trimpath -ldflags="-s -w" -o "$work/$name/serin" ./cmd/serin
	cp "$work/source/LICENSE" "$work/source/README.md" "$work/$name"
	archive --directory "$work/$name" LICENSE README.md serin | gzip --no-name >"$dist/$name.tar.gz"
	# Without the serial number and the time, which would differ in each build.
	cyclonedx bin -json -std -noserial -notimestamp -version "$version" -output "$dist/$name.cdx.json" "$work/$name/serin" 2>/dev/null
done

echo "=== image"
go build -C "$work/source/hack/release" -o "$work/image" ./image
"$work/image" -version "$number" -revision "$(git rev-parse HEAD)" -into "$work/layout" \
	"linux/amd64=$work/serin_${number}_linux_amd64/serin" "linux/arm64=$work/serin_${number}_linux_arm64/serin"
archive --directory "$work/layout" . >"$dist/serin-image_$number.tar"

echo "=== chart"
helm lint --quiet "$work/source/charts/serin"
helm package "$work/source/charts/serin" --version "$number" --app-version "$number" --destination "$dist" >/dev/null

echo "=== krew manifest"
{
	cat <<-END
		apiVersion: krew.googlecontainertools.github.com/v1alpha2
		kind: Plugin
		metadata:
		  name: serin
		spec:
		  version: $version
		  homepage: https://github.com/serin-dev/serin
		  shortDescription: Inspect and control progressive delivery
		  description: |
		    Shows and controls the releases of Serin: Canaries of Flagger's API and Rollouts of the API of Argo Rollouts.
		    "kubectl serin get" lists them, "kubectl serin why" explains what a release waits for.
		  platforms:
	END
	for platform in "${platforms[@]}"; do
		file=serin_${number}_${platform/\//_}.tar.gz
		sum=$(sha256sum "$dist/$file")
		cat <<-END
			  - selector:
			      matchLabels:
			        os: ${platform%/*}
			        arch: ${platform#*/}
			    uri: https://github.com/serin-dev/serin/releases/download/$version/$file
			    sha256: ${sum%% *}
			    bin: serin
		END
	done
} >"$dist/serin.yaml"

write_checksums "$dist"
cat "$dist/checksums.txt"
