//! Client libraries as people use them: each program is run at a Redis or memcached, then at a
//! proxy before it, and must be told the same. `cargo xtask clients` builds them and runs this.

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "shared with the tests of servers")]
mod common;

#[path = "../redis/servers.rs"]
#[expect(dead_code, reason = "shared with the tests before Redis")]
mod servers;

#[path = "../memcached/servers.rs"]
#[expect(dead_code, reason = "shared with the tests before memcached")]
mod stores;

use self::servers::{Redis, proxy};
use self::stores::World;
use overbank_kv::proxy::Running;
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
        through(program, proxy(redis.port, &[("lanes", lanes)]), &direct);
    }
}

/// Runs a program at memcached, and at a proxy.
fn same_of_memcached(program: &[&str]) {
    let Some(world) = World::start(&[]) else { return };
    let direct = told(program, world.server.port);
    assert!(direct.lines().count() > 5, "{direct}");
    through(program, world.running, &direct);
}

/// Runs a program at a proxy, which it has to be cached by.
fn through(program: &[&str], running: Running, direct: &str) {
    assert_eq!(told(program, running.handle().address().port()), direct);
    let (totals, _) = running.stop();
    assert!(totals.hits > 1000, "{totals:?}");
    let sum = totals.hits + totals.answered + totals.forwarded + totals.refused;
    assert_eq!(totals.commands, sum, "{totals:?}");
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

#[test]
fn pymemcache() {
    same_of_memcached(&["python/bin/python", "with_pymemcache.py"]);
}

#[test]
fn pylibmc() {
    same_of_memcached(&["python/bin/python", "with_pylibmc.py"]);
}
