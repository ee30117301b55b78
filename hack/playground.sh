#!/usr/bin/env bash
# Builds bin/playground, with the flags with which the playground builds its other programs, so that shared packages are
# compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -x bin/playground ]; then
	echo "The first start compiles Kubernetes, Prometheus, Traefik and Serin from source: about 7 minutes on two idle cores, seconds if they are cached." >&2
	# Modules of the other programs are downloaded concurrently; the builds of these programs report failures.
	# Only the own modules of Prometheus and Traefik: they are built without some of their imports.
	(
		cd playground/modules/programs
		go list -deps ./controlplane
		go mod download github.com/prometheus/prometheus github.com/traefik/traefik/v3 github.com/go-acme/lego/v4
	) >/dev/null 2>&1 &
	go list -deps ./cmd/serin >/dev/null 2>&1 &
fi
export CGO_ENABLED=0 GOGC=${GOGC:-400}
go build -C playground -buildvcs=false -gcflags=all=-dwarf=false -ldflags="-s -w" -o "$PWD/bin/playground" ./cmd/playground
