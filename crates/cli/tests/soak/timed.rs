//! Rules that end by themselves: none before its time, each within patience, and what is sent after
//! the end was told and confirmed is not treated by it.
//!
//! ```text
//!   started = n ── rule of generation n, hard timeout 1 s ── barrier ── confirmed = n
//!                 flow-removed ── barrier ── started = confirmed = n + 1, which has no rule
//! ```
//! The datagrams of E to [`TIMED`] are judged like the others of `generations.rs`: one with the
//! stamp of n that was sent when n + 1 was confirmed was treated by a rule that had ended.

use crate::bench::PATIENCE;
use crate::client::Client;
use crate::context::Soak;
use crate::generations::{Stamped, stamp, stamped};
use crate::scene::TIMED;
use overbank_openflow::{FlowFlags, FlowMod, FlowRemoved, FlowRemovedReason, Message, Version};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The timeout in seconds.
const TIMEOUT: u16 = 1;
/// Cookies of these rules, and the generation.
const COOKIE: u64 = 0x71_0000_0000;

/// Adds a rule whenever the last one has ended, until the soak does and `least` stamps were seen.
pub fn control(soak: &Soak, generations: &Stamped, least: u64) {
    let mut client = Client::connect(soak.scene.openflow, Version::V13);
    let (mut generation, mut longest) = (0, Duration::ZERO);
    let end = Instant::now() + Duration::from_secs(soak.plan.seconds) + PATIENCE;
    while !soak.is_stopped() || generations.seen.load(SeqCst) < least && Instant::now() < end {
        generation += 1;
        generations.started.store(generation, SeqCst);
        let rule = FlowMod {
            cookie: COOKIE + generation,
            hard_timeout: TIMEOUT,
            flags: FlowFlags::SEND_FLOW_REM,
            ..stamped(TIMED, 40_000, stamp(generation))
        };
        client.done(&Message::FlowMod(rule));
        generations.confirmed.store(generation, SeqCst);
        let gone = client.unasked(|message| match message {
            Message::FlowRemoved(gone) if gone.cookie == COOKIE + generation => Some(gone.clone()),
            _ => None,
        });
        let hard = gone.reason == FlowRemovedReason::HardTimeout;
        soak.check(hard, "rules with an end", || format!("{:?} and not its timeout", gone.reason));
        longest = longest.max(judge(soak, &gone).unwrap_or_default());
        client.drain();
        generation += 1;
        generations.started.store(generation, SeqCst);
        generations.confirmed.store(generation, SeqCst);
    }
    soak.count("rules with an end, stamping", generation / 2);
    soak.set("longest life of a rule of 1 s, ms", longest.as_millis() as u64);
}

/// How long a rule that ended by itself had lived, at least as long as it was to; `None`: it did
/// not end by itself.
pub fn judge(soak: &Soak, gone: &FlowRemoved) -> Option<Duration> {
    let timeout = match gone.reason {
        FlowRemovedReason::IdleTimeout => gone.idle_timeout,
        FlowRemovedReason::HardTimeout => gone.hard_timeout,
        _ => return None,
    };
    let lived = gone
        .stats
        .duration
        .map_or(Duration::ZERO, |lived| Duration::new(lived.sec.into(), lived.nsec));
    let holds = timeout != 0 && lived >= Duration::from_secs(timeout.into());
    soak.check(holds, "rules with an end", || {
        format!("one of {timeout} s ended after {lived:?}, {:?}", gone.reason)
    });
    Some(lived)
}
