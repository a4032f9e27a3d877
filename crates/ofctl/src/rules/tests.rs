use super::*;
use overbank_handover::mailbox::mailbox;
use overbank_runtime::control::{PUBLISH_EVERY_MAX_MS, PUBLISH_EVERY_MS, publish, tick};
use overbank_runtime::link::{Link, Snapshot, WorkerEnd};
use overbank_switch::parse::parse_rules;
use overbank_switch::tables::{Change, Filter};

fn rules(text: &str) -> Vec<Rule> {
    parse_rules(text).expect("rules of the test")
}

fn control(rules_max: usize, fail_mode: FailMode, has_controllers: bool) -> RuleControl {
    let config = ControlConfig {
        rules_max,
        view: View::default(),
        mac: Limits::default(),
        statics: Vec::new(),
        fail_mode,
        has_controllers,
        datapath_id: 1,
        seed: 1,
    };
    let port = PortDesc {
        number: 1,
        name: "one".to_owned(),
        mac: [0; 6],
        mtu: 1500,
        link_up: true,
        speed_mbps: 0,
        detail: String::new(),
    };
    let publisher = Publisher::new(vec![port]).expect("a descriptor");
    RuleControl::new(config, publisher).expect("memory")
}

fn text(control: &RuleControl) -> Vec<String> {
    let mut text: Vec<String> = control.tables().rules().iter().map(ToString::to_string).collect();
    text.sort();
    text
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let mut control = control(3, FailMode::Secure, false);
    control
        .reload(rules("priority=1,hard_timeout=9,send_flow_rem,actions=output:1"))
        .expect("fits");
    let before = text(&control);
    let outcome = control.transaction(|control| {
        assert_eq!(control.delete(&Filter::default()), 1);
        for rule in rules("priority=2,actions=drop\npriority=3,actions=drop") {
            control.add(rule)?;
        }
        for rule in rules("priority=4,actions=drop\npriority=5,actions=drop") {
            control.add(rule)?;
        }
        Ok::<_, RuleRefused>(())
    });
    assert_eq!(outcome, Err(RuleRefused::TableFull { max: 3 }));
    assert_eq!(text(&control), before);
    assert!(control.pending.is_empty(), "a refused change sends no event");
    assert_eq!(control.timeouts(), 1, "its time still comes");
    assert_eq!(control.totals().rules_refused, 1);
}

#[test]
fn a_reload_replaces_the_file_and_leaves_the_controllers_rules() {
    let mut control = control(10, FailMode::Secure, false);
    let file = "priority=1,actions=output:1\npriority=2,actions=output:1\npriority=3,actions=drop";
    let done = control.reload(rules(file)).expect("fits");
    assert_eq!(done, Reloaded { added: 3, ..Reloaded::default() });
    control.add(rules("priority=9,actions=drop").remove(0)).expect("fits");
    let kept = control.tables().entries().find(|e| e.rule.priority == 1).cloned().expect("there");
    let file = "priority=1,actions=output:1\npriority=2,actions=drop\npriority=4,actions=drop";
    let done = control.reload(rules(file)).expect("fits");
    assert_eq!(done, Reloaded { added: 1, changed: 1, removed: 1, kept: 1 });
    let priorities: Vec<u16> = {
        let mut all: Vec<u16> = control.tables().entries().map(|e| e.rule.priority).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(priorities, [1, 2, 4, 9]);
    let now = control.tables().entries().find(|e| e.rule.priority == 1).cloned().expect("there");
    assert!(Arc::ptr_eq(&kept, &now), "the same rule with its counters");
    // One that does not fit changes nothing, also not what counts as the file's.
    let many: String = (20..40).map(|p| format!("priority={p},actions=drop\n")).collect();
    let before = text(&control);
    control.reload(rules(&many)).expect_err("too many");
    assert_eq!(text(&control), before);
    let done = control.reload(Vec::new()).expect("an empty file is a file");
    assert_eq!((done.removed, control.tables().len()), (3, 1));
}

#[test]
fn standing_in_for_controllers() {
    // Without controllers to connect to: only for what no rule matches.
    let mut alone = control(10, FailMode::Standalone, false);
    assert_eq!(text(&alone).len(), 1);
    assert!(text(&alone)[0].contains("priority=0,actions=normal"), "{:?}", text(&alone));
    alone.reload(rules("priority=0,actions=drop")).expect("fits");
    assert!(text(&alone)[0].contains("drop"), "the file's own rule says what shall happen");
    alone.reload(Vec::new()).expect("fits");
    assert!(text(&alone)[0].contains("normal"), "and when it is gone, ours is back");
    // With controllers: over everything, until one comes.
    let mut control = control(10, FailMode::Standalone, true);
    control.reload(rules("priority=5,actions=drop")).expect("fits");
    assert_eq!(text(&control).len(), 2);
    control.controller_connected(true);
    assert_eq!(text(&control).len(), 1);
    control.controller_connected(true);
    control.controller_connected(false);
    assert_eq!(text(&control).len(), 1, "one is still there");
    control.controller_connected(false);
    assert!(
        text(&control).iter().any(|rule| rule.contains("priority=65535")),
        "{:?}",
        text(&control)
    );
}

#[test]
fn rules_that_come_and_go_leave_no_heap_behind() {
    let mut control = control(1000, FailMode::Secure, false);
    let timed = rules("priority=7,idle_timeout=60000,actions=drop").remove(0);
    for _ in 0..20_000 {
        control.add(timed.clone()).expect("replaces itself");
    }
    assert!(control.timeouts() <= 2 * control.tables().len() + 1024 + 1, "{}", control.timeouts());
    let change = Change {
        actions: Vec::new(),
        clear_actions: false,
        write_actions: Vec::new(),
        cookie: None,
        reset_counts: false,
    };
    for _ in 0..20_000 {
        assert_eq!(control.modify(&Filter::default(), &change).expect("fits"), 1);
    }
    assert!(control.timeouts() <= 2 * control.tables().len() + 1024 + 1, "{}", control.timeouts());
}

#[test]
fn snapshots_are_published_once_for_many_changes() {
    let mut control = control(1000, FailMode::Secure, false);
    let link = Arc::new(Link::new(1, 4).expect("a link"));
    let first = Snapshot::<RuleEngine> {
        engine: control.snapshot(),
        ports: control.publisher().views().clone(),
    };
    let (sender, mut worker) = mailbox(0, first);
    let workers = Arc::new([WorkerEnd { sender, link: link.clone() }]);
    control.publisher_mut().set_workers(workers);
    publish(&mut control);
    assert!(worker.take(|_, _| {}));
    for p in 0..100 {
        control.add(rules(&format!("priority={p},actions=drop")).remove(0)).expect("fits");
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(tick(&mut control), PUBLISH_EVERY_MS, "where rules change, more do soon");
    assert!(link.bell.answer());
    assert!(worker.take(|_, _| {}));
    assert_eq!((worker.version(), worker.current().engine.tables.len()), (2, 100));
    tick(&mut control);
    assert!(!worker.has_next(), "nothing has changed");
    assert!(!control.publisher_mut().take_garbage().is_empty());
    // Straight after a snapshot, the next one waits its millisecond.
    publish(&mut control);
    control.delete(&Filter::default());
    let soon = tick(&mut control);
    assert!(soon <= PUBLISH_EVERY_MS || !control.publisher().is_dirty(), "{soon}");
}

#[test]
fn a_flood_of_changes_is_published_less_often() {
    let mut control = control(1000, FailMode::Secure, false);
    let (start, before) = (control.publisher().now_ms(), control.publisher().totals());
    let flood_ms = 20 * PUBLISH_EVERY_MAX_MS;
    while control.publisher().now_ms() < start + flood_ms {
        control.publisher_mut().touch();
        tick(&mut control);
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    let published = control.publisher().totals().snapshots_published - before.snapshots_published;
    let elapsed_ms = control.publisher().now_ms() - start;
    // 1, 2, 4, 8, 16, then every 32 milliseconds. A pause of the test itself begins anew.
    assert!((1..=8 + elapsed_ms / 8).contains(&published), "{published} in {elapsed_ms} ms");
}
