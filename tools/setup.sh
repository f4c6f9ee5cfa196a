#!/usr/bin/env bash
# Installs the Debian packages minim is built from; silent when all are there.
#   tools/setup.sh         what the build and the tests need
#   tools/setup.sh --dev   also clang-format, clang-tidy and doxygen
# Exit status: 0 all there, 1 apt-get failed, 2 something is missing and cannot be installed here.
set -euo pipefail

# package=what it brings: a command, or a header (then it has a slash or a dot)
needed=(
  "g++=g++"
  cmake=cmake
  ninja-build=ninja
  libeigen3-dev=eigen3/Eigen/Core
  doctest-dev=doctest/doctest.h
  libcli11-dev=CLI/CLI.hpp
  libtomlplusplus-dev=toml++/toml.h
  nlohmann-json3-dev=nlohmann/json.hpp
  libfmt-dev=fmt/format.h
  libbenchmark-dev=benchmark/benchmark.h
  libsentencepiece-dev=sentencepiece_processor.h
)
for_developers=(clang-format=clang-format clang-tidy=clang-tidy doxygen=doxygen)

case "${1-}" in
  '') ;;
  --dev) needed+=("${for_developers[@]}") ;;
  *)
    echo "tools/setup.sh: unknown argument '$1'; it takes --dev or nothing" >&2
    exit 2
    ;;
esac

installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# For systems without dpkg: is the command on the PATH, does the compiler find the header?
present() {
  if [[ $1 == *[/.]* ]]; then
    echo "#include <$1>" | g++ -std=c++20 -E -o /dev/null -x c++ - 2>/dev/null
  else
    command -v "$1" >/dev/null
  fi
}

has_dpkg=$(command -v dpkg-query || true)
missing=()
for entry in "${needed[@]}"; do
  if [[ $has_dpkg ]]; then
    installed "${entry%=*}" || missing+=("${entry%=*}")
  else
    present "${entry#*=}" || missing+=("${entry%=*}")
  fi
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "tools/setup.sh: this system has no apt-get; please install what these Debian packages bring:" >&2
  echo "  ${missing[*]}" >&2
  exit 2
fi

as_root=()
if [[ $(id -u) != 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "tools/setup.sh: packages are missing and there is no sudo; please run as root:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 2
  fi
  as_root=(sudo)
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

echo "installing ${missing[*]}" >&2
if ! { apt update && apt install -y --no-install-recommends "${missing[@]}"; } >&2; then
  echo "tools/setup.sh: apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
