#!/usr/bin/env bash
# Installs the browser in which the dashboard is tested, if it is missing. Only on Debian, as root; elsewhere the tests in a
# browser are skipped with a message.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
	! command -v "$name" >/dev/null || exit 0
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "Chromium is not installed: the tests of the dashboard in a browser are skipped."
	exit 0
fi
echo "Installing Chromium for the tests of the dashboard."
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null
