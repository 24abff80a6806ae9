#!/usr/bin/env bash
# Which drafter design is better? Same target, text, batches and steps; then the engine, on prompts nobody trained on.
#
#   experiments/compare_drafters.sh OUT STORE PROMPTS_FOLDER
#
# STORE is a feature store (make drafter writes two), PROMPTS_FOLDER holds gsm8k.jsonl, humaneval.jsonl and
# mt-bench.jsonl. A run that is there already is not repeated. STEPS, SEQUENCES and ANCHORS size the trainings,
# PROMPTS and TOKENS the evaluation; the second part sweeps the block size.
set -euo pipefail
readonly out=$1 store=$2 prompts=$3
readonly steps=${STEPS:-300} sequences=${SEQUENCES:-12} anchors=${ANCHORS:-12}
readonly each=${PROMPTS:-8} tokens=${TOKENS:-96}
dspark=${DSPARK:-.venv/bin/dspark}
mkdir -p "$out"

train() { # name recipe [FIELD=VALUE...]
    local name=$1 recipe=$2
    shift 2
    [[ -e $out/$name/done ]] && return
    "$dspark" train "$recipe" "$out/$name" --store "$store" optim.steps="$steps" optim.warmup=20 \
        sequences_per_step="$sequences" anchors_per_sequence="$anchors" validate_every="$steps" save_every=100 "$@"
    touch "$out/$name/done"
}

evaluate() { # report name...
    local report=$1 sets=() arms=() name
    shift
    [[ -e $out/$report/report.json ]] && return
    for name in gsm8k humaneval mt-bench; do sets+=(--prompts "$prompts/$name.jsonl:$each"); done
    for name in "$@"; do arms+=(-d "$name=$out/$name/best"); done
    "$dspark" eval "${sets[@]}" "${arms[@]}" --baseline "$1" --max-tokens "$tokens" --no-plain --out "$out/$report"
}

train dflash dflash
train eagle3 eagle3
train dflash-5-layers dflash drafter.num_hidden_layers=5
train dspark-1-layer dspark-1-layer
train dspark shipped
train dspark-gated dspark-gated
train dspark-rnn dspark-rnn
evaluate designs dflash eagle3 dflash-5-layers dspark-1-layer dspark dspark-gated dspark-rnn

for block in 4 8 12 16; do
    train dflash-block-$block dflash drafter.block_size=$block
    train dspark-block-$block shipped drafter.block_size=$block
    evaluate block-$block dflash-block-$block dspark-block-$block
done
