#!/bin/bash
# RUSTC_WRAPPER of workloads/: asks rustc to call a hook at every load and store of the programs
# that are watched. The hooks themselves, the machine behind them and the rest stay as they are.
# Generic code, std's too, is compiled into the crate that uses it, and so is watched there.
# Cargo notices no change of this file: run `cargo clean` for the crates that it should name.
# bash, since dash drops variables with a hyphen: cargo's CARGO_BIN_EXE_overbank-workloads.
name=
previous=
for argument; do
    [ "$previous" = --crate-name ] && name=$argument
    previous=$argument
done
case $name in
overbank_watched | overbank | redb | congee | crossbeam_*)
    exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=1 \
        -Cllvm-args=-sanitizer-coverage-trace-loads -Cllvm-args=-sanitizer-coverage-trace-stores
    ;;
esac
exec "$@"
