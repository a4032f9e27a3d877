use super::*;
use overbank_handover::mailbox::mailbox;
use crate::snapshot::Clock;
use crate::sys::Bell;
use overbank_switch::parse::parse_rules;
use overbank_switch::tables::{Change, Filter};
use std::sync::atomic::AtomicUsize;

fn rules(text: &str) -> Vec<Rule> {
    parse_rules(text).expect("rules of the test")
}

fn core(rules_max: usize, fail_mode: FailMode, has_controllers: bool) -> Core {
    let config = CoreConfig {
        mode: Mode::OpenFlow,
        rules_max,
        mac: l2::Limits::default(),
        statics: Vec::new(),
        isolated: Vec::new(),
        fail_mode,
        has_controllers,
        datapath_id: 1,
        seed: 1,
    };
    let common = Arc::new(Common {
        clock: Clock::start(),
        bell: Bell::new().expect("a descriptor"),
        controllers: AtomicUsize::new(0),
    });
    let port = PortDesc {
        number: 1,
        name: "one".to_owned(),
        mac: [0; 6],
        mtu: 1500,
        link_up: true,
        config: PortConfig::default(),
        detail: String::new(),
    };
    Core::new(config, vec![port], common).expect("memory")
}

fn text(core: &Core) -> Vec<String> {
    let mut text: Vec<String> = core.tables().rules().iter().map(ToString::to_string).collect();
    text.sort();
    text
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let mut core = core(3, FailMode::Secure, false);
    core.reload(rules("priority=1,hard_timeout=9,send_flow_rem,actions=output:1")).expect("fits");
    let before = text(&core);
    let outcome = core.transaction(|core| {
        assert_eq!(core.delete(&Filter::default()), 1);
        for rule in rules("priority=2,actions=drop\npriority=3,actions=drop") {
            core.add(rule)?;
        }
        for rule in rules("priority=4,actions=drop\npriority=5,actions=drop") {
            core.add(rule)?;
        }
        Ok::<_, RuleRefused>(())
    });
    assert_eq!(outcome, Err(RuleRefused::TableFull { max: 3 }));
    assert_eq!(text(&core), before);
    assert!(core.pending.is_empty(), "nobody hears of what did not happen");
    assert_eq!(core.timeouts(), 1, "its time still comes");
    assert_eq!(core.totals().table_full, 1);
}

#[test]
fn a_reload_replaces_the_file_and_leaves_the_controllers_rules() {
    let mut core = core(10, FailMode::Secure, false);
    let file = "priority=1,actions=output:1\npriority=2,actions=output:1\npriority=3,actions=drop";
    let done = core.reload(rules(file)).expect("fits");
    assert_eq!(done, Reloaded { added: 3, ..Reloaded::default() });
    core.add(rules("priority=9,actions=drop").remove(0)).expect("fits");
    let kept = core.tables().entries().find(|e| e.rule.priority == 1).cloned().expect("there");
    let file = "priority=1,actions=output:1\npriority=2,actions=drop\npriority=4,actions=drop";
    let done = core.reload(rules(file)).expect("fits");
    assert_eq!(done, Reloaded { added: 1, changed: 1, removed: 1, kept: 1 });
    let priorities: Vec<u16> = {
        let mut all: Vec<u16> = core.tables().entries().map(|e| e.rule.priority).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(priorities, [1, 2, 4, 9]);
    let now = core.tables().entries().find(|e| e.rule.priority == 1).cloned().expect("there");
    assert!(Arc::ptr_eq(&kept, &now), "the same rule with its counters");
    // One that does not fit changes nothing, also not what counts as the file's.
    let many: String = (20..40).map(|p| format!("priority={p},actions=drop\n")).collect();
    let before = text(&core);
    core.reload(rules(&many)).expect_err("too many");
    assert_eq!(text(&core), before);
    let done = core.reload(Vec::new()).expect("an empty file is a file");
    assert_eq!((done.removed, core.tables().len()), (3, 1));
}

#[test]
fn standing_in_for_controllers() {
    // Without controllers to connect to: only for what no rule matches.
    let mut alone = core(10, FailMode::Standalone, false);
    assert_eq!(text(&alone).len(), 1);
    assert!(text(&alone)[0].contains("priority=0,actions=normal"), "{:?}", text(&alone));
    alone.reload(rules("priority=0,actions=drop")).expect("fits");
    assert!(text(&alone)[0].contains("drop"), "the file's own rule says what shall happen");
    alone.reload(Vec::new()).expect("fits");
    assert!(text(&alone)[0].contains("normal"), "and when it is gone, ours is back");
    // With controllers: over everything, until one comes.
    let mut core = core(10, FailMode::Standalone, true);
    core.reload(rules("priority=5,actions=drop")).expect("fits");
    assert_eq!(text(&core).len(), 2);
    core.controller_connected(true);
    assert_eq!(text(&core).len(), 1);
    core.controller_connected(true);
    core.controller_connected(false);
    assert_eq!(text(&core).len(), 1, "one is still there");
    core.controller_connected(false);
    assert!(text(&core).iter().any(|rule| rule.contains("priority=65535")), "{:?}", text(&core));
}

#[test]
fn rules_that_come_and_go_leave_no_heap_behind() {
    let mut core = core(1000, FailMode::Secure, false);
    let timed = rules("priority=7,idle_timeout=60000,actions=drop").remove(0);
    for _ in 0..20_000 {
        core.add(timed.clone()).expect("replaces itself");
    }
    assert!(core.timeouts() <= 2 * core.tables().len() + 1024 + 1, "{}", core.timeouts());
    let change = Change {
        actions: Vec::new(),
        clear_actions: false,
        write_actions: Vec::new(),
        cookie: None,
        reset_counts: false,
    };
    for _ in 0..20_000 {
        assert_eq!(core.modify(&Filter::default(), &change).expect("fits"), 1);
    }
    assert!(core.timeouts() <= 2 * core.tables().len() + 1024 + 1, "{}", core.timeouts());
}

#[test]
fn snapshots_are_published_once_for_many_changes() {
    let mut core = core(1000, FailMode::Secure, false);
    let (_, reports) = l2::Learner::new(1, &l2::Limits::default());
    let link = Link::new(1, 4, 4, reports).expect("a link");
    let link = Arc::new(link);
    let (sender, mut worker) = mailbox(0, core.snapshot());
    core.set_workers(Arc::new([WorkerEnd { sender, link: link.clone() }]));
    core.publish();
    assert!(worker.take(|_, _| {}));
    for p in 0..100 {
        core.add(rules(&format!("priority={p},actions=drop")).remove(0)).expect("fits");
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(core.tick(), 20);
    assert!(link.bell.answer());
    assert!(worker.take(|_, _| {}));
    assert_eq!((worker.version(), worker.current().tables.len()), (2, 100));
    core.tick();
    assert!(!worker.has_next(), "nothing has changed");
    assert!(!core.take_garbage().is_empty());
    // Straight after a snapshot, the next one waits its millisecond.
    core.publish();
    core.delete(&Filter::default());
    let soon = core.tick();
    assert!(soon <= PUBLISH_EVERY_MS || !core.dirty, "{soon}");
}
