#!/usr/bin/env bash
# Writes the bundle of the playground for this platform into dist/, or the folder in DIST: the programs and definitions of
# the demo, which take minutes to build from source. It adds the bundle to the checksums of the release, if they exist.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/release/tools.sh

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
dist=${DIST:-dist}
mkdir -p "$dist"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

hack/playground.sh
bin/playground bundle "$work/serin-playground"
archive --directory "$work" serin-playground | gzip --no-name >"$dist/serin-playground-$(go env GOOS)-$(go env GOARCH).tar.gz"
write_checksums "$dist"
grep serin-playground "$dist/checksums.txt"
