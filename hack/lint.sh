#!/usr/bin/env bash
# Runs golangci-lint over all modules, and Vale over the documents, the comments of code, manifests and scripts, and the texts of
# scenarios and of the regression corpus. Arguments go to `golangci-lint run`: --fix repairs and formats what it can.
set -uo pipefail
cd "$(dirname "$0")/.."

# Run by version, so that their dependencies stay out of go.mod; Go keeps the built programs in its cache.
golangci() { go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 "$@"; }
vale() { go run github.com/errata-ai/vale/v3/cmd/vale@v3.19.0 "$@"; }

failed=0
for module in . playground hack/release test/plugins; do
	echo "=== lint $module"
	(cd "$module" && golangci run --allow-parallel-runners "$@") || failed=1
done
echo "=== lint documents"
vale README.md CONTRIBUTING.md CHANGELOG.md docs charts playground/README.md test/conformance/README.md test/conformance/flagger/README.md || failed=1
echo "=== lint comments"
mapfile -t sources < <(find . -name '*.go' ! -name 'zz_generated*')
vale "${sources[@]}" || failed=1
echo "=== lint comments of manifests, scripts and scenarios, descriptions of the regression corpus"
# Vale checks a text file as a whole, but only this part of these files is prose. The copies keep paths and line numbers.
prose=$(mktemp -d)
trap 'rm -rf "$prose"' EXIT
extract() { # SCRIPT FILE…: writes the lines that the sed script prints to FILE.prose
	local script=$1 file
	for file in "${@:2}"; do
		mkdir -p "$prose/${file%/*}"
		sed -E "$script" "$file" >"$prose/$file.prose"
	done
}
mapfile -t commented < <(git ls-files Makefile .ci/run '*.yaml' '*.yml' '*.sh')
extract 's/^(.*[[:space:]])?#+ //; t; s/.*//' "${commented[@]}"
extract '/^#/!s/.*//; s/^# ?//' internal/{canary,rollout}/testdata/scenarios/*.txt
extract '1s/.*//' test/sim/corpus/*.txt
vale --config="$PWD/.vale.ini" "$prose" || failed=1
exit $failed
