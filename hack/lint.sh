#!/usr/bin/env bash
# Runs golangci-lint over both modules. Arguments go to `golangci-lint run`: --fix mends what can be mended and formats.
set -uo pipefail
cd "$(dirname "$0")/.."

# Run by version, so that its dependencies stay out of go.mod; Go keeps the built program in its cache.
golangci() { go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 "$@"; }

failed=0
for module in . playground; do
	echo "=== lint $module"
	(cd "$module" && golangci run --allow-parallel-runners "$@") || failed=1
done
exit $failed
