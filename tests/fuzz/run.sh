#!/bin/sh
# Runs every fuzz program that was built: run.sh DIR SECONDS, where DIR is the build directory
# (meson setup DIR -Dfuzz=true, with clang). Each program runs for SECONDS from the seeds and from
# what earlier runs found, which is kept in DIR/fuzz-corpus. A finding stays in DIR/fuzz-findings and
# makes the exit code 1.
set -u

if [ $# -ne 2 ]; then
	echo "usage: run.sh DIR SECONDS" >&2
	exit 2
fi
here=$(dirname "$0")
build=$1
seconds=$2
corpus=$build/fuzz-corpus
findings=$build/fuzz-findings
failed=0
ran=0

mkdir -p "$corpus" "$findings"
python3 "$here/seeds.py" "$corpus/seeds" || exit 1
for program in "$build"/tests/fuzz/fuzz_*; do
	[ -f "$program" ] && [ -x "$program" ] || continue
	name=${program##*/fuzz_}
	mkdir -p "$corpus/found/$name" "$corpus/seeds/$name"
	echo "fuzz $name: $seconds s"
	if ! nice "$program" -max_total_time="$seconds" -max_len=16384 -timeout=10 \
		-rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
		-artifact_prefix="$findings/$name-" \
		"$corpus/found/$name" "$corpus/seeds/$name" 2>"$findings/$name.log"; then
		echo "fuzz $name: FAILED, see $findings/$name.log" >&2
		failed=1
	fi
	grep -E 'number_of_executed_units|peak_rss' "$findings/$name.log"
	ran=$((ran + 1))
done
if [ "$ran" -eq 0 ]; then
	echo "fuzz: no program in $build/tests/fuzz" >&2
	exit 1
fi
exit "$failed"
