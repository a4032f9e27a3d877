//! The tools that people use, beside all that: `ovs-ofctl` adds files of rules, by bundles or one
//! by one, changes, counts and deletes them; SIGHUP has the switch read its own file again.

use crate::context::{Soak, Threads};
use crate::netns::try_run;
use crate::process::openflow_socket;
use rand::Rng;
use std::sync::Arc;
use std::time::Duration;

/// Rules of a file.
const RULES: usize = 300;

/// Starts it.
pub fn start(soak: &Arc<Soak>, threads: &mut Threads) {
    threads.here(soak, "ovs-ofctl", tool);
}

fn tool(soak: &Soak) {
    let mut random = soak.random("ovs-ofctl");
    let folder = soak.scene.folder.path();
    let (file, at) = (folder.join("flows.txt"), openflow_socket(folder));
    let (file, at) = (file.display(), at.display());
    let mut rounds = 0;
    let ofctl = |version: &str, what: &str| {
        let command = format!("ovs-ofctl -O {version} {what}");
        let (done, said, error) = try_run(&command);
        soak.check(done, "ovs-ofctl", || format!("{command}: {error}"));
        said
    };
    while !soak.is_stopped() {
        rounds += 1;
        let cookie = format!("0xf11e{rounds:04x}");
        let mut text = String::new();
        for n in 0..RULES {
            let (x, port) = (random.random::<u8>(), random.random_range(1..7));
            text += &format!(
                "table=7,cookie={cookie},priority={},ip,nw_src=10.126.{}.{x},actions=output:{port}\n",
                n + 1,
                n % 250
            );
        }
        std::fs::write(folder.join("flows.txt"), text).expect("written");
        let bundle = if random.random() { "--bundle" } else { "" };
        let version = if bundle.is_empty() { "OpenFlow13" } else { "OpenFlow14" };
        ofctl(version, &format!("{bundle} add-flows unix:{at} {file}"));
        let count = || {
            let said = ofctl("OpenFlow13", &format!("dump-flows unix:{at} cookie={cookie}/-1"));
            said.lines().filter(|line| line.contains("table=7")).count()
        };
        let there = count();
        soak.check(there == RULES, "ovs-ofctl", || format!("{there} of {RULES} rules are there"));
        ofctl("OpenFlow13", &format!("mod-flows unix:{at} cookie={cookie}/-1,actions=drop"));
        ofctl("OpenFlow13", &format!("dump-ports unix:{at}"));
        ofctl("OpenFlow13", &format!("del-flows unix:{at} cookie={cookie}/-1"));
        let left = count();
        soak.check(left == 0, "ovs-ofctl", || format!("{left} rules are left of a deletion"));
        soak.sleep(Duration::from_millis(300));
    }
    soak.count("rounds of ovs-ofctl", rounds);
}
