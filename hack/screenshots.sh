#!/usr/bin/env bash
# Takes the screenshots in docs/images while the end-to-end test of the dashboard uses it in Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."

hack/browser.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
(cd playground && SERIN_SCREENSHOTS=$folder CI=true go test ./e2e -run 'TestDashboardShows' -count=1)
mkdir -p docs/images
cp "$folder/release-light.png" docs/images/release.png
cp "$folder/fleet-light.png" docs/images/fleet.png
echo "docs/images: $(ls docs/images | tr '\n' ' ')"
