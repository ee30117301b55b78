#!/usr/bin/env bash
# Builds the image of Serin for amd64 and arm64 with ko and pushes it to KO_DOCKER_REPO, with the appVersion of the chart
# and latest as tags. Arguments are passed to `ko build`: --tags=edge sets other tags, --push=false --oci-layout-path=image
# writes a local layout instead.
#
# With --loadtester as the first argument, it builds an image for the load tester: the same program on a base with bash,
# because webhooks of the type bash, and commands with pipes, need a shell. KO_DEFAULTBASEIMAGE sets another base, with the
# programs that tests call.
set -euo pipefail
cd "$(dirname "$0")/.."

what="make image"
if [ "${1:-}" = --loadtester ]; then
	shift
	what="make image-loadtester"
	# Bash on Alpine, for both platforms; grep, sed, wget and the like are those of BusyBox.
	export KO_DEFAULTBASEIMAGE="${KO_DEFAULTBASEIMAGE:-docker.io/library/bash:5.3}"
fi
if [ -z "${KO_DOCKER_REPO:-}" ]; then
	echo "$what requires a repository for the image: set KO_DOCKER_REPO, such as registry.example.com/serin" >&2
	exit 1
fi
case " $* " in
*" --tags"* | *" -t "*) ;;
*) set -- --tags="$(sed -n 's/^appVersion: *//p' charts/serin/Chart.yaml),latest" "$@" ;;
esac
# Run by version, so that its dependencies stay out of go.mod; Go keeps the built program in its cache. The user is set
# explicitly, because bases differ.
exec go run github.com/google/ko@v0.19.1 build --bare --image-user=65532 "$@" ./cmd/serin
