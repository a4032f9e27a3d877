//! Client libraries as people use them: each program is run at a Redis or memcached, then at a
//! proxy before it, and must be told the same. `cargo xtask clients` builds them and runs this.

#[path = "../redis/servers.rs"]
#[expect(dead_code, reason = "shared with the tests before Redis")]
mod servers;

use self::servers::{Redis, proxy};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `cargo xtask clients` puts what it builds.
fn built(path: &str) -> PathBuf {
    let folder = std::env::var_os("OVERBANK_CLIENTS").expect("cargo xtask clients runs this test");
    Path::new(&folder).join(path)
}

/// Returns what a program prints that is given the port of a server.
fn told(program: &[&str], port: u16) -> String {
    let (first, rest) = program.split_first().expect("a program");
    let mut command = Command::new(if first.contains('/') { built(first) } else { first.into() });
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let output = command.args(rest).arg(port.to_string()).current_dir(here).output();
    let output = output.expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a program at Redis, and at each kind of proxy.
fn same(program: &[&str]) {
    let Some(redis) = Redis::start(&[]) else { return };
    let direct = told(program, redis.port);
    assert!(direct.lines().count() > 5, "{direct}");
    for lanes in ["shared", "dedicated"] {
        let running = proxy(redis.port, &[("lanes", lanes)]);
        let through = told(program, running.handle().address().port());
        assert_eq!(through, direct, "{lanes}");
        let (totals, _) = running.stop();
        assert!(totals.hits > 1000, "{lanes}: {totals:?}");
        let sum = totals.hits + totals.answered + totals.forwarded + totals.refused;
        assert_eq!(totals.commands, sum, "{totals:?}");
    }
}

#[test]
fn redis_py() {
    same(&["python/bin/python", "with_redis_py.py"]);
}

#[test]
fn ioredis() {
    same(&["node", built("node/with_ioredis.js").to_str().expect("text")]);
}

#[test]
fn go_redis() {
    same(&["go/goredis"]);
}

#[test]
fn rueidis() {
    same(&["go/rueidis"]);
}
