//! The judge beside stateright's tester, which searches all orders.

use super::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

/// What happens next: a thread calls or gets its reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Call(usize),
    Reply(usize),
}

/// Whether there is an order, by search.
fn by_search(operations: &[Operation]) -> bool {
    let mut tester = LinearizabilityTester::new(Register(None));
    let mut events: Vec<(u64, Event)> = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        events.push((operation.call, Event::Call(at)));
        events.extend(operation.reply.map(|reply| (reply, Event::Reply(at))));
    }
    events.sort_unstable_by_key(|event| event.0);
    // Each operation is a thread.
    for (_, event) in events {
        let done = match event {
            Event::Call(at) => {
                let op = match operations[at].kind {
                    Kind::Put(value) => RegisterOp::Write(Some(value)),
                    Kind::Delete => RegisterOp::Write(None),
                    Kind::Read(_) => RegisterOp::Read,
                };
                tester.on_invoke(at, op).map(drop)
            }
            Event::Reply(at) => {
                let said = match operations[at].kind {
                    Kind::Put(_) | Kind::Delete => RegisterRet::WriteOk,
                    Kind::Read(value) => RegisterRet::ReadOk(value),
                };
                tester.on_return(at, said).map(drop)
            }
        };
        done.expect("an operation begins, then ends");
    }
    tester.is_consistent()
}

/// All histories of some operations by some threads; with what is done at each.
struct All<F> {
    threads: usize,
    operations: usize,
    deletes: bool,
    done: F,
}

impl<F: FnMut(&[Operation])> All<F> {
    /// Goes on from here: `open` has the operation of each thread that has begun.
    fn from(
        &mut self,
        last: Option<Event>,
        now: u64,
        open: &mut Vec<Option<usize>>,
        all: &mut Vec<Operation>,
    ) {
        if all.len() == self.operations {
            self.reads(0, all);
        }
        for thread in 0..(open.len() + 1).min(self.threads) {
            // Neighbouring calls, or replies, are in the order of threads: others say the same.
            let before = |event: Option<Event>| match event {
                Some(Event::Call(other)) => (thread < other, false),
                Some(Event::Reply(other)) => (false, thread < other),
                None => (false, false),
            };
            let (called, replied) = before(last);
            match open.get(thread).copied().flatten() {
                Some(at) if !replied => {
                    (all[at].reply, open[thread]) = (Some(now), None);
                    self.from(Some(Event::Reply(thread)), now + 1, open, all);
                    (all[at].reply, open[thread]) = (None, Some(at));
                }
                None if !called && all.len() < self.operations => {
                    let is_new = thread == open.len();
                    if is_new {
                        open.push(None);
                    }
                    open[thread] = Some(all.len());
                    let puts = all.iter().filter(|o| matches!(o.kind, Kind::Put(_))).count();
                    let delete = self.deletes.then_some(Kind::Delete);
                    let kinds = [Kind::Put(puts as u64 + 1), Kind::Read(None)];
                    for kind in kinds.into_iter().chain(delete) {
                        all.push(Operation { kind, call: now, reply: None });
                        self.from(Some(Event::Call(thread)), now + 1, open, all);
                        all.pop();
                    }
                    open[thread] = None;
                    if is_new {
                        open.pop();
                    }
                }
                _ => {}
            }
        }
    }

    /// Lets the reads from `at` on return all that may be.
    fn reads(&mut self, at: usize, all: &mut Vec<Operation>) {
        let Some(next) = (at..all.len())
            .find(|at| matches!(all[*at].kind, Kind::Read(_)) && all[*at].reply.is_some())
        else {
            return (self.done)(all);
        };
        let puts = all.iter().filter(|o| matches!(o.kind, Kind::Put(_))).count() as u64;
        for value in 0..=puts {
            all[next].kind = Kind::Read(Some(value).filter(|value| *value > 0));
            self.reads(next + 1, all);
        }
        all[next].kind = Kind::Read(None);
    }
}

fn every(threads: usize, operations: usize, deletes: bool, done: impl FnMut(&[Operation])) {
    let mut all = All { threads, operations, deletes, done };
    all.from(None, 1, &mut Vec::new(), &mut Vec::new());
}

#[test]
fn all_short_histories_are_judged_as_by_search() {
    let (mut right, mut wrong) = (0, 0);
    for (threads, operations) in [(3, 1), (3, 2), (3, 3), (3, 4), (2, 5), (3, 5)] {
        every(threads, operations, false, |history| {
            let found = by_search(history);
            assert_eq!(judge(history).is_ok(), found, "{history:#?}");
            *if found { &mut right } else { &mut wrong } += 1;
        });
    }
    println!("{right} right, {wrong} wrong");
    assert!(right > 10_000 && wrong > 10_000, "{right} {wrong}");
}

#[test]
fn with_deletes_what_is_reported_is_wrong() {
    let (mut right, mut reported, mut missed) = (0, 0, 0);
    for (threads, operations) in [(3, 3), (2, 4), (3, 4)] {
        every(threads, operations, true, |history| match (judge(history), by_search(history)) {
            (Err(violation), true) => panic!("{violation}: {history:#?}"),
            (Err(_), false) => reported += 1,
            (Ok(()), true) => right += 1,
            (Ok(()), false) => missed += 1,
        });
    }
    println!("{right} right, {reported} reported, {missed} missed");
    assert!(missed * 20 < reported, "{missed} of {reported}");
}

/// A history of threads that are served by a register, each operation at some time between its call
/// and its reply; one read in `wrong` returns another value.
fn random(random: &mut Pcg64, count: usize, wrong: u32) -> Vec<Operation> {
    let mut history = Vec::new();
    let (mut register, mut puts, mut now) = (None, 0, 1);
    // Threads: what is open, and whether it was done.
    let mut open: Vec<Option<(usize, bool)>> = vec![None; 3];
    while history.len() < count || open.iter().any(Option::is_some) {
        now += 1;
        let thread = random.random_range(0..open.len());
        match open[thread] {
            None if history.len() < count => {
                let is_put = random.random_range(0..3) == 0;
                puts += u64::from(is_put);
                let kind = if is_put { Kind::Put(puts) } else { Kind::Read(None) };
                open[thread] = Some((history.len(), false));
                history.push(Operation { kind, call: now, reply: None });
            }
            Some((at, false)) => {
                open[thread] = Some((at, true));
                match &mut history[at].kind {
                    Kind::Put(value) => register = Some(*value),
                    Kind::Read(read) if random.random_range(0..wrong) == 0 => {
                        *read = Some(random.random_range(1..=puts.max(1)));
                    }
                    Kind::Read(read) => *read = register,
                    Kind::Delete => {}
                }
            }
            // One in eight has no reply.
            Some((at, true)) => {
                history[at].reply = (random.random_range(0..8) > 0).then_some(now);
                open[thread] = None;
            }
            None => {}
        }
    }
    history
}

#[test]
fn random_histories_are_judged_as_by_search() {
    let mut numbers = Pcg64::seed_from_u64(1);
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..100_000 {
        let history = random(&mut numbers, 7, 8);
        let found = by_search(&history);
        assert_eq!(judge(&history).is_ok(), found, "{history:#?}");
        *if found { &mut right } else { &mut wrong } += 1;
    }
    println!("{right} right, {wrong} wrong");
    assert!(right > 10_000 && wrong > 10_000, "{right} {wrong}");
}

#[test]
fn long_histories_take_no_search() {
    let mut numbers = Pcg64::seed_from_u64(2);
    let mut history = random(&mut numbers, 200_000, u32::MAX);
    assert_eq!(judge(&history), Ok(()));
    // The last read returns the first value.
    let last = history.iter().rposition(|o| matches!(o.kind, Kind::Read(_)) && o.reply.is_some());
    history[last.expect("a read")].kind = Kind::Read(Some(1));
    assert!(matches!(judge(&history), Err(Violation::Between(..))));
}
