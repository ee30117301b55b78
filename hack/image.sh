#!/usr/bin/env bash
# Builds the image of Serin for amd64 and arm64 with ko and pushes it to KO_DOCKER_REPO, under the version that the chart
# asks for and as latest. Arguments go to `ko build`: --tags=edge names it otherwise, --push=false --oci-layout-path=image
# keeps it here.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${KO_DOCKER_REPO:-}" ]; then
	echo "make image needs to know where the image belongs: set KO_DOCKER_REPO, such as registry.example.com/serin" >&2
	exit 1
fi
case " $* " in
*" --tags"* | *" -t "*) ;;
*) set -- --tags="$(sed -n 's/^appVersion: *//p' charts/serin/Chart.yaml),latest" "$@" ;;
esac
# Run by version, so that its dependencies stay out of go.mod; Go keeps the built program in its cache. The user is set,
# and not left to the base.
exec go run github.com/google/ko@v0.19.1 build --bare --image-user=65532 "$@" ./cmd/serin
