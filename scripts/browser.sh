#!/usr/bin/env bash
# Tests the server's page in headless Chromium. The browser comes from the system; playwright, which drives it, is put
# into .venv here and is not in the lock, so that nobody else has to fetch it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

found=
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    found=${found:-$(command -v "$name" || true)}
done
if [[ -z $found ]]; then
    printf 'no Chromium found: install it (Debian: apt-get install chromium) and try again\n' >&2
    exit 1
fi
.venv/bin/python -c 'import playwright' 2>/dev/null ||
    .venv/bin/python -m pip --disable-pip-version-check install --quiet 'playwright>=1.50'
exec .venv/bin/pytest -m browser tests/serving "$@"
