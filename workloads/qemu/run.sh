#!/bin/bash
# Compares the machine fed by the compiler's hooks with one fed by QEMU, which sees every load and
# store of the program built without hooks. Run by hand: `workloads/qemu/run.sh [INDEX…]`, after
# `cargo xtask workloads` and `cargo xtask workloads --plain`. Needs Debian's qemu-user.
# Prints a line of JSON for each: figures a lookup. README.md has the last record.
set -euo pipefail
cd "$(dirname "$0")/../.."
plain=target/workloads/plain/release
need() {
    echo "workloads/qemu/run.sh: $1 is missing: $2" >&2
    exit 1
}
[ -n "$(command -v qemu-x86_64)" ] || need qemu-x86_64 'apt-get install qemu-user'
[ -n "$(command -v setarch)" ] || need setarch 'apt-get install util-linux'
[ -x target/workloads/release/overbank-workloads ] ||
    need 'the program with hooks' 'cargo xtask workloads'
[ -x "$plain/overbank-workloads" ] ||
    need 'the program without hooks' 'cargo xtask workloads --plain'
cargo build --release --quiet --manifest-path workloads/Cargo.toml -p overbank-qemu \
    --target-dir target/workloads/plain
requests=100000
# Page walks are off in both.
options="--items 100000 --lookups $requests --warmup $requests --keys fresh
    --set tlb.walk_levels=0"
for index in "${@:-lmdb btreemap}"; do
    for one in $index; do
        # shellcheck disable=SC2086
        hooks=$(target/workloads/release/overbank-workloads run --index "$one" $options)
        # The program ends with the error that no hook was called.
        # shellcheck disable=SC2086
        all=$(setarch -R qemu-x86_64 \
            -plugin "$plain/liboverbank_qemu.so,warmup=$requests,lookups=$requests" \
            "$plain/overbank-workloads" run --index "$one" $options 2>&1 || true)
        qemu=$(grep "^{" <<<"$all") || { printf '%s\n' "$all" >&2; exit 1; }
        printf '%s\n%s\n' "$hooks" "$qemu" | python3 -c '
import json, sys
hooks, qemu = (json.loads(line) for line in sys.stdin)
counters, lookups = hooks["counters"], hooks["lookups"]
machine = {
    "accesses": counters["accesses"] / lookups,
    "l1_misses": counters["l1"]["misses"] / lookups,
    "llc_misses": counters["llc"]["misses"] / lookups,
}
off = {
    level: round(100 * (machine[level] / qemu["all"][level] - 1), 2)
    for level in ("l1_misses", "llc_misses")
}
print(json.dumps({"index": hooks["index"], "hooks": machine, "qemu": qemu, "off_percent": off}))
if any(abs(percent) > 10 for percent in off.values()):
    sys.exit("more than 10 % apart")
'
    done
done
