#!/usr/bin/env bash
# Which drafter design is better? Same target, text, batches and steps; then the engine, on prompts nobody trained on.
#
#   experiments/compare_drafters.sh OUT PROMPTS_FOLDER STORE...
#
# STORE is a feature store (make drafter writes two), PROMPTS_FOLDER holds gsm8k.jsonl, humaneval.jsonl and
# mt-bench.jsonl. A run that is there already is not repeated. STEPS, SEQUENCES and ANCHORS size the trainings,
# SWEEP_ANCHORS those of the second part, which varies the block size; PROMPTS and TOKENS size the evaluation.
set -euo pipefail
readonly out=$1 prompts=$2
shift 2
readonly stores=("$@") steps=${STEPS:-300} sequences=${SEQUENCES:-12} anchors=${ANCHORS:-12}
readonly sweep_anchors=${SWEEP_ANCHORS:-8} each=${PROMPTS:-8} tokens=${TOKENS:-96}
dspark=${DSPARK:-.venv/bin/dspark}
mkdir -p "$out"

train() { # name recipe [FIELD=VALUE...]
    local name=$1 recipe=$2 from=()
    shift 2
    [[ -e $out/$name/done ]] && return
    for store in "${stores[@]}"; do from+=(--store "$store"); done
    echo "== $name"
    "$dspark" train "$recipe" "$out/$name" "${from[@]}" optim.steps="$steps" optim.warmup=20 \
        sequences_per_step="$sequences" anchors_per_sequence="$anchors" validate_every="$steps" save_every=100 \
        drafter.draft_vocab_size="${VOCABULARY:-8192}" "$@"
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

# The last of them shows how much of the difference is the objective's: DFlash's backbone with DSpark's loss.
train dflash dflash
train dspark dspark
train eagle3 eagle3
train dflash-5-layers dflash drafter.num_hidden_layers=5
train dspark-1-layer dspark-1-layer
train dspark-gated dspark-gated
train dspark-rnn dspark-rnn
train dflash-dspark-loss dflash loss.ce=0.2 loss.kl=0.7 loss.tv=1.0
evaluate designs dflash eagle3 dflash-5-layers dflash-dspark-loss dspark-1-layer dspark dspark-gated dspark-rnn

for block in 4 8 12 16; do
    for design in dflash dspark; do
        train $design-block-$block $design drafter.block_size=$block anchors_per_sequence="$sweep_anchors"
    done
    evaluate block-$block dflash-block-$block dspark-block-$block
done
