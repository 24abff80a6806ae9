#!/usr/bin/env bash
# Draw the figures of docs/simulator.md anew: about half a minute on one core.
set -euo pipefail
cd "$(dirname "$0")/.."
dspark=${DSPARK:-.venv/bin/dspark}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

$dspark simulate --costs gpu --acceptance 'chat*3,code,math' --block-size 5 --noise 0.5 \
    --prompt-tokens 1 --answer-tokens 64-256 --concurrency 1,2,4,8,16,32,64,96,128,192,256,384,512 --rounds 3 \
    -p fixed:1 -p fixed -p async -p oracle --out "$out"
for name in frontier load; do cp "$out/$name.png" "docs/simulator-$name.png"; done
