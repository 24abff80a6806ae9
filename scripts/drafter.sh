#!/usr/bin/env bash
# The shipped drafter from nothing but its target: text, features, training, confidence, calibration. Every stage is
# resumed when the script is started again. About eight CPU hours on two cores; TOKENS, FRESH and STEPS make it shorter.
#
#   scripts/drafter.sh [FOLDER]        (make drafter; FOLDER is build/drafter)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly folder=${1:-build/drafter} dspark=.venv/bin/dspark
mkdir -p "$folder"

text_with_features() { # name tokens seed
    "$dspark" data synthesize "$folder/$1.jsonl" --tokens "$2" --seed "$3"
    [[ -e $folder/$1/manifest.json ]] || "$dspark" data features "$folder/$1.jsonl" "$folder/$1"
}

# The backbone learns from one text, the confidence head from another: on text the backbone has learnt by heart, drafts
# look better than they are.
text_with_features talks "${TOKENS:-1200000}" 0
text_with_features fresh "${FRESH:-150000}" 1
"$dspark" train shipped "$folder/run" --store "$folder/talks" ${STEPS:+optim.steps="$STEPS"}
"$dspark" train confidence "$folder/confidence" --store "$folder/fresh" --init-from "$folder/run/best"
"$dspark" calibrate --drafter "$folder/confidence/best" --temperature 1,0

echo "The drafter is in $folder/confidence/best; try: dspark chat --drafter $folder/confidence/best"
