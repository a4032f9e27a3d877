//! Usage reporting rules: volumes since the last report.
//!
//! ```text
//!   PDR from access ─ names ─▶ URR ◀─ names ─ PDR from core
//!                               │
//!   counts of the session: uplink and downlink; a URR counts those of the PDRs that name it
//! ```
//!
//! A session has one PDR of each direction that counts, so its two counts tell them apart. What a
//! URR has used is brought up to date ([`Urr::settle`]) before the PDRs that name it change. One
//! that no PDR names counts nothing.

use crate::message::{Refusal, is_foreign, need, read};
use overbank_gateway::slab::{Counts, Traffic};
use rs_pfcp::ie::measurement_method::MeasurementMethod;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use rs_pfcp::ie::ur_seqn::UrSeqn;
use rs_pfcp::ie::urr_id::UrrId;
use rs_pfcp::ie::volume_threshold::VolumeThreshold;
use rs_pfcp::ie::{Ie, IeType};
use serde::{Deserialize, Serialize};

/// Why a report is made: the octets of Usage Report Trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// The volume reached the threshold.
    Volume,
    /// It was asked for.
    Immediate,
    /// The session or the rule ended, or no PDR names the rule any longer (TERMR).
    End,
}

impl Trigger {
    const fn octets(self) -> [u8; 3] {
        match self {
            Trigger::Volume => [1 << 1, 0, 0],
            Trigger::Immediate => [1 << 7, 0, 0],
            Trigger::End => [0, 1 << 3, 0],
        }
    }
}

/// A rule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Urr {
    /// Bytes from which a report is due: in total, uplink, downlink.
    threshold: [Option<u64>; 3],
    /// Whether thresholds are reported.
    at_threshold: bool,
    sequence: u32,
    /// Whether a PDR of this direction names it: uplink, downlink.
    counts: [bool; 2],
    /// Used since the last report, up to the counts `at`.
    used: Counts,
    at: Counts,
}

/// What is there beyond `before`. After the death of a node of a cluster, counts begin again
/// lower.
fn beyond(now: Traffic, before: Traffic) -> Traffic {
    Traffic {
        packets: now.packets.saturating_sub(before.packets),
        bytes: now.bytes.saturating_sub(before.bytes),
        dropped: 0,
    }
}

fn sum(a: Traffic, b: Traffic) -> Traffic {
    Traffic {
        packets: a.packets.saturating_add(b.packets),
        bytes: a.bytes.saturating_add(b.bytes),
        dropped: 0,
    }
}

impl Urr {
    pub(crate) fn set(&mut self, parts: &[Ie], is_new: bool) -> Result<(), Refusal> {
        use IeType as T;
        if is_new {
            need(parts, T::MeasurementMethod)?;
            need(parts, T::ReportingTriggers)?;
        }
        for ie in parts {
            match ie.ie_type {
                T::UrrId => {}
                T::MeasurementMethod => {
                    let method = read(ie, MeasurementMethod::unmarshal)?;
                    if !method.volume || method.duration || method.event {
                        return Err(Refusal::unsupported(ie));
                    }
                }
                T::ReportingTriggers => {
                    let mut triggers = read(ie, ReportingTriggers::unmarshal)?;
                    self.at_threshold = triggers.contains(ReportingTriggers::VOLTH);
                    triggers.remove(ReportingTriggers::VOLTH);
                    if !triggers.is_empty() {
                        return Err(Refusal::unsupported(ie));
                    }
                }
                T::VolumeThreshold => {
                    let threshold = read(ie, VolumeThreshold::unmarshal)?;
                    self.threshold = [
                        threshold.total_volume,
                        threshold.uplink_volume,
                        threshold.downlink_volume,
                    ];
                }
                _ if is_foreign(ie) => {}
                _ => return Err(Refusal::unsupported(ie)),
            }
        }
        Ok(())
    }

    /// Brings what was used up to these counts.
    pub(crate) fn settle(&mut self, now: Counts) {
        (self.used, self.at) = (self.used(now), now);
    }

    /// Returns the directions whose packets it counts: uplink, downlink.
    pub(crate) fn counts(&self) -> [bool; 2] {
        self.counts
    }

    /// Counts these directions from the counts on that it was settled at.
    pub(crate) fn count(&mut self, counts: [bool; 2]) {
        self.counts = counts;
    }

    /// Returns what was used since the last report.
    fn used(&self, now: Counts) -> Counts {
        let Urr { counts: [up, down], used, at, .. } = *self;
        let more = |counts: bool, used: Traffic, now, before| {
            if counts { sum(used, beyond(now, before)) } else { used }
        };
        Counts {
            uplink: more(up, used.uplink, now.uplink, at.uplink),
            downlink: more(down, used.downlink, now.downlink, at.downlink),
        }
    }

    /// Returns whether a threshold is reached.
    pub(crate) fn is_due(&self, now: Counts) -> bool {
        let [bytes, _] = numbers(self.used(now));
        let reached = |(used, threshold): (&u64, &Option<u64>)| {
            threshold.is_some_and(|threshold| *used >= threshold.max(1))
        };
        self.at_threshold && bytes.iter().zip(&self.threshold).any(reached)
    }

    /// Makes a report as an element of this type, and counts from here on.
    pub(crate) fn report(&mut self, id: u32, kind: IeType, why: Trigger, now: Counts) -> Ie {
        let [bytes, packets] = numbers(self.used(now));
        (self.used, self.at) = (Counts::default(), now);
        let sequence = self.sequence;
        self.sequence += 1;
        // All six numbers: flags, then volumes, then packets.
        let mut measured = vec![0x3f];
        bytes.iter().chain(&packets).for_each(|number| measured.extend(number.to_be_bytes()));
        let parts = vec![
            UrrId::new(id).to_ie(),
            UrSeqn::new(sequence).to_ie(),
            Ie::new(IeType::UsageReportTrigger, why.octets().to_vec()),
            Ie::new(IeType::VolumeMeasurement, measured),
        ];
        Ie::new_grouped(kind, parts)
    }
}

/// Returns bytes and packets: in total, uplink, downlink.
fn numbers(Counts { uplink: up, downlink: down }: Counts) -> [[u64; 3]; 2] {
    let total = sum(up, down);
    [[total.bytes, up.bytes, down.bytes], [total.packets, up.packets, down.packets]]
}
