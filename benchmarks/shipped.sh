#!/bin/sh
# Measures every figure that depends on a shipped model, one after the other.
#   [MODEL=en-de] sh benchmarks/shipped.sh FOLDER [PART …]
# FOLDER holds newstest2013, newstest2014, tatoeba-valid, tatoeba-test, europarl-valid, europarl-test and
# multi30k-test2016, each in both languages of MODEL: NAME.en and NAME.de. PARTs: scores behaviour inside decoding.
# The default is all four. Only scores depends on MODEL; the other parts measure en-de and en-fr.
# The end reports the parts that failed; their earlier results stay.
set -u
[ $# -ge 1 ] || { sed -n 's/^# //; 2,7p' "$0"; exit 2; }
sets=$(cd "$1" && pwd) || exit 2
shift
root=$(cd "$(dirname "$0")/.." && pwd) && cd "$root" || exit 2
python=${PYTHON:-python}
onehop="$python -m onehop"
model=${MODEL:-en-de}
from=${model%-*} to=${model#*-}
failed=""

make_again() { # NAME COMMAND…
    name=$1 began=$(date +%s)
    shift
    echo "--- $*"
    if "$@"; then echo "($name: $(($(date +%s) - began)) s)"; else failed="$failed $name"; fi
}

score() { # SET: its translations and their report
    ln -sf "$sets/$1.$from" "$sets/$1.$to" "$work"
    mkdir -p "results/$model"
    $onehop translate --model "$model" --whole-lines -i "$work/$1.$from" -o "$work/$1.hyp" &&
        (cd "$work" && PYTHONPATH=$root $onehop evaluate --src "$1.$from" --ref "$1.$to" --hyp "$1.hyp" --json >"$1.json") &&
        mv "$work/$1.json" "results/$model/$1.json" || return 1
    case $1 in newstest*) gzip -9 -n -c "$work/$1.hyp" >"results/$model/$1.hyp.gz" ;; esac
}

scores() {
    for set in newstest2014 newstest2013 tatoeba-test europarl-test multi30k-test2016; do make_again "$set" score $set; done
    make_again alpha $python benchmarks/alpha.py --model "$model" --data "$sets" -o "results/$model/alpha.jsonl"
}

behaviour() {
    make_again pronouns $python benchmarks/pronouns.py --model en-de --json results/en-de/pronouns.json
    make_again pronouns-fr $python benchmarks/pronouns.py --model en-fr --json results/en-fr/pronouns.json
    make_again robustness $python benchmarks/robustness.py --model en-de --json results/en-de/robustness.json
    make_again agreement $python benchmarks/agreement.py -o results/agreement.json
}

inside() {
    make_again heads $onehop paper heads -m en-de --source "$sets/multi30k-test2016.en" \
        --reference "$sets/multi30k-test2016.de" --sentences 200 -o results/paper
    make_again alignments $python benchmarks/alignments.py --pairs 200 --pair "$sets/newstest2014.en" \
        "$sets/newstest2014.de" --pair "$sets/europarl-test.en" "$sets/europarl-test.de" -o results/alignments.json
    everyday="--source $sets/tatoeba-valid.en --reference $sets/tatoeba-valid.de"
    make_again coreference $onehop paper measure coreference -m en-de
    make_again patterns $onehop paper measure patterns -m en-de --source "$sets/tatoeba-valid.en" --sentences 200
    make_again pruning $onehop paper measure pruning -m en-de $everyday --sentences 200
    make_again lengths $onehop paper measure lengths -m en-de $everyday --sentences 400
}

decoding() {
    file="$sets/newstest2014.en $sets/newstest2014.de"
    make_again file $python benchmarks/decode_speed.py --file $file --rounds 1 \
        --systems onehop ctranslate2-readme ctranslate2-tuned -o results/decode_file.json
    make_again load $python benchmarks/serve_load.py --model en-de --texts "$sets/tatoeba-valid.en" \
        -o results/serve_load.json
    make_again explorer $python benchmarks/explorer.py -m en-de --page -o results/explorer.json
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- scores behaviour inside decoding
for part in "$@"; do
    case $part in
    scores | behaviour | inside | decoding) $part ;;
    *) echo "There is no part $part. Parts: scores behaviour inside decoding." >&2 && exit 2 ;;
    esac
done
[ -z "$failed" ] || { echo "Failed:$failed" >&2 && exit 1; }
