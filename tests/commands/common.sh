# Sourced by the tests of this folder, which get the path of `minim`: a scratch directory that goes
# away, and checks that show what they saw when they fail.
set -u
[[ $# -eq 1 && -x $1 ]] || { echo "usage: $0 PATH_OF_MINIM" >&2 && exit 2; }
minim=$(realpath "$1")
scratch=$(mktemp -d)
running=  # a background run, by its id
trap '[[ -z $running ]] || kill -9 "$running" 2>/dev/null; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1

failed() {
  echo "FAILED: $*"
  tail -n 15 stdout stderr
  exit 1
}

# Runs minim with these words; its status is in $status, its output in the files stdout and stderr.
run() {
  "$minim" "$@" >stdout 2>stderr
  status=$?
}

succeeds() {
  run "$@"
  [[ $status -eq 0 ]] || failed "exit status $status: minim $*"
}

# Sizes, sums and names of everything in a directory.
contents() { [[ ! -e $1 ]] || find "$1" -exec ls -d {} + -type f -exec cksum {} + | sort; }

# refuses DIR TEXT WORDS...: minim WORDS is refused in one line that has TEXT; DIR stays as it was.
refuses() {
  local dir=$1 expected=$2 before
  shift 2
  before=$(contents "$dir")
  run "$@"
  [[ $status -eq 2 ]] || failed "exit status $status, not 2: minim $*"
  [[ $(wc -l <stderr) -eq 1 && $(<stderr) == "minim: error: "* ]] ||
    failed "not one line 'minim: error: ...' on stderr: minim $*"
  [[ $(<stderr) == *"$expected"* ]] || failed "the message lacks '$expected': minim $*"
  [[ $(contents "$dir") == "$before" ]] || failed "$dir was changed: minim $*"
}

same_bytes() { cmp "$1" "$2" || failed "$1 and $2 differ"; }
