# Sourced by test.sh and test_inference.sh: a virtual environment for tests against an installed
# library. They set `subject`, `prefix`, `folder` and `environment`, and call in this order skip()
# where they cannot run, make_environment, pip by "${pip[@]}", and install_package.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environment=${environment:-$work/environment}
log=$work/log

# skip REASON: exit status 77, with the reason and the last lines of what was tried.
skip() {
  echo "SKIPPED: $subject: $1"
  [ ! -s "$log" ] || tail -n 5 "$log"
  exit 77
}

make_environment() {
  [ -e "$prefix/include/unisono/unisono.h" ] || { echo "$0: nothing in $prefix" >&2; exit 2; }
  local python=${PYTHON:-python3}
  command -v "$python" >/dev/null || skip "there is no $python"
  [ -x "$environment/bin/python" ] || "$python" -m venv "$environment" >"$log" 2>&1 ||
    skip "$python makes no virtual environment (apt install python3-venv)"
  run=$environment/bin/python
  pip=("$run" -m pip install --quiet --disable-pip-version-check)
}

# install_package MODULE VERSION: stand-ins for CUDA where MODULE cannot be imported without, and the
# package with its adapter. Sets has_cuda to "yes" where there is a GPU and no stand-in for its
# libraries.
install_package() {
  local site
  has_cuda=''
  if "$run" -c "import $1" 2>"$log"; then
    "$run" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>"$log" && has_cuda=yes
  else
    site=$("$run" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$run" "$folder/cuda_stubs.py" "$site" "$environment/cuda-stubs" >"$log"
    export LD_LIBRARY_PATH=$environment/cuda-stubs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    "$run" -c "import $1" 2>"$log" || skip "$1 $2 cannot be imported"
  fi
  # From a copy: pip builds beside the sources.
  mkdir "$work/package"
  cp -r "$folder"/{pyproject.toml,unisono_torch,unisono_torch_autoload.py} "$work/package"
  "${pip[@]}" --no-deps --force-reinstall "$work/package"
  export TORCH_UNISONO_ROOT=$prefix TORCH_UNISONO_CACHE=$environment/adapter
  "$run" -m unisono_torch --prebuild
}
