//! A worker round by round, with a port and an engine that do what a test says.

use super::*;
use crate::link::PortView;
use overbank_ports::queue::{Received, SendError, Transmit, TransmitCounters};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

overbank_declare::counters! {
    struct Nothing: "test_" {
        seen: counter frames "Frames seen" in none;
    }
}

overbank_reasons::reasons! {
    enum Never {
        Never = "never", "it does not happen";
    }
}

/// Notes what it is called for.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: String) {
        self.0.lock().expect("no test panics inside").push(what);
    }

    fn read(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test panics inside"))
    }
}

impl Engine for Diary {
    type Snapshot = u32;
    type Order = u32;
    type Totals = Nothing;
    type Drop = Never;

    fn process(&mut self, burst: &[&[u8]], _: Ingress, _: u64, out: &mut Out<Never>) {
        burst.iter().enumerate().for_each(|(i, frame)| out.output(i, 0, frame));
    }

    fn carry_out(&mut self, order: u32, _: u64, _: &mut Out<Never>) {
        self.note(format!("order {order}"));
    }

    fn take_over(&mut self, old: &u32, new: &u32, _: u64) {
        self.note(format!("{old} to {new}"));
    }

    fn settle(&mut self, _: u64) {
        self.note("settle".to_owned());
    }

    fn totals(&self) -> Nothing {
        Nothing::default()
    }
}

/// A port that missed frames before it ended, and sends what a test lets it send.
struct Ended {
    missed: u64,
    sent: Arc<AtomicU64>,
}

impl Receive for Ended {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        Ok(Received::default())
    }

    fn is_finished(&self) -> bool {
        true
    }

    fn counters(&mut self) -> ReceiveCounters {
        ReceiveCounters { missed: self.missed, ..ReceiveCounters::default() }
    }
}

impl Transmit for Ended {
    fn send(&mut self, _: &[u8]) -> Result<(), SendError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    fn counters(&mut self) -> TransmitCounters {
        TransmitCounters { sent: self.sent.load(Ordering::Relaxed), ..TransmitCounters::default() }
    }
}

fn queue(missed: u64) -> (Option<Queue>, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let half = || Box::new(Ended { missed, sent: sent.clone() });
    (Some(Queue { receive: half(), transmit: half() }), sent)
}

/// A worker on one port, its control side's end of the mailbox, and its engine's diary.
fn worker() -> (Worker<Diary>, mailbox::Sender<Snapshot<Diary>>, Diary) {
    let ports: Arc<[_]> = [PortView { number: 1, receives: true, sends: true }].into();
    let (sender, mailbox) = mailbox::mailbox(1, Snapshot { engine: 1, ports });
    let link = Arc::new(Link::new(1, 8).expect("descriptors"));
    let common = Arc::new(Common::new().expect("descriptors"));
    let diary = Diary::default();
    (Worker::new(mailbox, diary.clone(), link, common, true), sender, diary)
}

#[test]
fn an_order_of_before_is_carried_out_before_a_snapshot_counts_as_seen() {
    let (mut worker, sender, diary) = worker();
    worker.link.orders.push(7).expect("room");
    let ports = worker.mailbox.current().ports.clone();
    sender.post(2, Snapshot { engine: 2, ports });
    assert!(worker.listen());
    assert_eq!(diary.read(), ["1 to 2", "order 7", "settle"]);
    assert_eq!(sender.seen(), 2);
}

#[test]
fn a_port_that_comes_back_goes_on_with_what_it_missed() {
    let (mut worker, ..) = worker();
    for (missed, total) in [(3, 3), (2, 5)] {
        worker.attach(0, queue(missed).0);
        worker.publish();
        assert_eq!(worker.out.totals[0].missed, total);
        worker.attach(0, None);
        worker.publish();
        assert_eq!(worker.out.totals[0].missed, total);
    }
}

#[test]
fn a_worker_has_finished_when_its_last_frame_has_left() {
    let (mut worker, ..) = worker();
    let (port, sent) = queue(0);
    worker.attach(0, port);
    worker.out.begin(0);
    worker.out.output(0, 0, &[0; 60]);
    worker.out.end();
    worker.publish();
    assert!(!worker.link.finished.load(Ordering::Relaxed), "a frame waits in the queue");
    sent.store(1, Ordering::Relaxed);
    worker.publish();
    assert!(worker.link.finished.load(Ordering::Relaxed));
}
