#!/usr/bin/env bash
# Builds bin/playground, with the flags with which the playground builds its other programs, so that packages that
# several of them link are compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -x bin/playground ]; then
	echo "The first start compiles Kubernetes, Prometheus, Traefik and Serin from source: about 7 minutes on two idle cores." >&2
	echo "Later starts take seconds." >&2
	# What the other programs need is downloaded meanwhile; what fails here is reported by those who build them.
	# Of Prometheus and Traefik these are only their own modules, because they are built without some of what they import.
	(
		cd playground/modules/programs
		go list -deps ./controlplane
		go mod download github.com/prometheus/prometheus github.com/traefik/traefik/v3 github.com/go-acme/lego/v4
	) >/dev/null 2>&1 &
	go list -deps ./cmd/serin >/dev/null 2>&1 &
fi
export CGO_ENABLED=0 GOGC=${GOGC:-400}
go build -C playground -buildvcs=false -gcflags=all=-dwarf=false -ldflags="-s -w" -o "$PWD/bin/playground" ./cmd/playground
