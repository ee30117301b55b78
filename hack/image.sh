#!/usr/bin/env bash
# Builds the image of Serin for amd64 and arm64 with ko and pushes it to KO_DOCKER_REPO. Arguments go to `ko build`:
# --push=false --tarball=serin.tar keeps it here, --local gives it to the container engine of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v ko >/dev/null; then
	echo "make image needs ko, which this machine does not have: go install github.com/google/ko@latest" >&2
	exit 1
fi
if [ -z "${KO_DOCKER_REPO:-}" ]; then
	echo "make image needs to know where the image belongs: set KO_DOCKER_REPO, such as registry.example.com/serin" >&2
	exit 1
fi
exec ko build --bare "$@" ./cmd/serin
