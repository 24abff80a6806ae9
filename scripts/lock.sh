#!/usr/bin/env bash
# Resolves requirements/lock.txt: every package but torch, exact versions, hashes of all their files, Python 3.11 and up.
# Versions already locked stay where they still fit; UPGRADE=1 moves all of them to the newest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly tools=build/lock
mkdir -p build
[[ -x $tools/bin/uv ]] || .venv/bin/python -m venv $tools
$tools/bin/pip --disable-pip-version-check install --quiet uv==0.13.9

$tools/bin/uv pip compile pyproject.toml requirements/tools.in --extra dev --extra default-target --extra plot \
    --extra train --extra endpoint --extra otel \
    --excludes requirements/left-out.txt --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --custom-compile-command 'make lock' ${UPGRADE:+--upgrade} --quiet --output-file requirements/lock.txt >/dev/null
grep -c '==' requirements/lock.txt | sed 's/$/ packages locked/'
