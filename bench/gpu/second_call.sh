# What the first call left: every test program, the trainer, others' libraries, more sizes. Sourced
# by run.sh.
# shellcheck shell=bash disable=SC2034,SC2154

second_call() {
  run_part conformance 230
  run_part train 75
  run_part peers 100
  run_part sanitizer 80
  run_part sweep 200
}

part_conformance() {
  local program programs_run=0 cublas=yes path
  has_cublas || cublas=''
  path=$(path_with_cublas)
  for program in $(list_tests); do
    case $program in
      *cuda_pieces_test) ;;
      *) [ -z "$rehearsal" ] || continue ;;
    esac
    case $program in
      */train_cuda_*)
        [ -n "$cublas" ] || { left_out="$left_out ${program##*/}(no cuBLAS here)"; continue; }
        ;;
    esac
    programs_run=$((programs_run + 1))
    LD_LIBRARY_PATH=$path run_suites "${program##*/}" 90
  done
  [ $programs_run -gt 0 ] || { echo "there are no test programs" >&3; return 77; }
  conclude "suites of $programs_run programs, $(count_tests "$raw/conformance.log")"
}

part_train() {
  local model ranks steps=200 batch=128 models='mlp cnn' data='' path told=''
  "$unisono" train --help > /dev/null 2>&1 || { echo "the trainer was not built" >&3; return 77; }
  [ -z "$rehearsal" ] || { steps=2 batch=8 models=mlp; }
  [ -d "$programs/data" ] && data="--data $programs/data"
  has_cublas || { echo "no cuBLAS here" >&3; return 77; }
  path=$(path_with_cublas)
  echo "cuBLAS: ${UNISONO_CUBLAS_LIBRARY:-$path}"
  for model in $models; do
    for ranks in 2 4; do
      echo "=== $model, $ranks ranks on one GPU"
      # shellcheck disable=SC2086
      LD_LIBRARY_PATH=$path attempt "$model/$ranks" 40 \
        "$unisono" train --compare --device cuda --device-map 0 -n $ranks --model $model \
        --batch $batch --limit-steps $steps $data > "$raw/train_${model}_$ranks.txt"
      cat "$raw/train_${model}_$ranks.txt"
    done
  done
  # With images, how well the model has learned says whether it has.
  if [ -n "$data" ] || [ -d /usr/share/datasets/fashion-mnist ]; then
    # shellcheck disable=SC2086
    LD_LIBRARY_PATH=$path attempt epoch/2 40 "$unisono" train --device cuda --device-map 0 -n 2 \
      --model "${models##* }" --batch $batch --epochs 1 --limit-steps $steps --quiet \
      --output "$raw/train" $data > "$raw/train_epoch.txt"
    cat "$raw/train_epoch.txt"
    told=$(grep -oE 'test accuracy [0-9.]+ %' "$raw/train_epoch.txt")
    told=", ${told:-no accuracy told}"
  fi
  conclude "runs of all strategies and of one epoch${told:-: no images}"
}

part_peers() {
  local python
  [ -z "$rehearsal" ] || [ -n "${REHEARSE_PEERS:-}" ] ||
    { echo "peers have no double" >&3; return 77; }
  python=$(find_torch_python) || { echo "no torch here" >&3; return 77; }
  # It ends by itself before the part does, whose end else would cut it short.
  attempt peers 3600 "$python" "$here/peers.py" "$raw/peers.jsonl" $((deadline - $(date +%s) - 3))
  conclude "run of peers.py"
}

part_sanitizer() {
  local sanitizer tool what
  sanitizer=$(find_sanitizer) || { echo "compute-sanitizer is not installed" >&3; return 77; }
  for tool in memcheck racecheck initcheck; do
    for what in "all_reduce -n 4" "reduce_scatter -n 4 -d bfloat16" "all_gather -n 3 -d int8"; do
      check_memory $tool "$what"
      [ -z "$rehearsal" ] || break 2
    done
  done
  ! refused sanitizer 'Device not supported' "compute-sanitizer does not support this device" ||
    return 77
  conclude "runs under compute-sanitizer"
}

# Every size, warm too.
part_sweep() {
  local ranks as what rank_counts='2 4 8' budget=40 sizes
  [ -z "$rehearsal" ] || { rank_counts=2 budget=2; }
  for what in "all_reduce -d float32 --place in" "all_reduce -d bfloat16 --place in" \
    "all_gather --place out" "reduce_scatter --place out" "broadcast"; do
    for ranks in $rank_counts; do
      for as in threads processes; do
        sizes='-b 4K -e 256M -f 4'
        [ $as = threads ] || sizes='-b 4K -e 256M -f 16'
        [ -z "$rehearsal" ] || sizes='-b 4K -e 64K -f 16 -I 2 -w 0'
        # shellcheck disable=SC2086
        measure timing.jsonl "${what%% *}/$as/$ranks" 40 $what -n "$ranks" --as $as --floor \
          --mode both --budget-ms $budget $sizes
      done
    done
    [ -z "$rehearsal" ] || break
  done
  conclude "runs, $(grep -c '"collective"' "$raw/timing.jsonl") rows"
}
