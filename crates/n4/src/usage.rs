//! Usage reporting rules: volumes since the last report.

use crate::message::{Refusal, is_foreign, need, read};
use overbank_gateway::slab::Counts;
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
    /// The session ended.
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
    /// Counts at the last report.
    since: Counts,
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

    /// Starts counting here.
    pub(crate) fn start(&mut self, now: Counts) {
        self.since = now;
    }

    /// Bytes and packets since the last report: in total, uplink, downlink.
    fn used(&self, now: Counts) -> [[u64; 3]; 2] {
        // After the death of a node of a cluster, counts begin again lower.
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let sum = |up: u64, down: u64| [up.saturating_add(down), up, down];
        let (up, down) = (self.since.uplink, self.since.downlink);
        [
            sum(since(now.uplink.bytes, up.bytes), since(now.downlink.bytes, down.bytes)),
            sum(since(now.uplink.packets, up.packets), since(now.downlink.packets, down.packets)),
        ]
    }

    /// Returns whether a threshold is reached.
    pub(crate) fn is_due(&self, now: Counts) -> bool {
        let [bytes, _] = self.used(now);
        let reached = |(used, threshold): (&u64, &Option<u64>)| {
            threshold.is_some_and(|threshold| *used >= threshold.max(1))
        };
        self.at_threshold && bytes.iter().zip(&self.threshold).any(reached)
    }

    /// Makes a report as an element of this type, and counts from here on.
    pub(crate) fn report(&mut self, id: u32, kind: IeType, why: Trigger, now: Counts) -> Ie {
        let [bytes, packets] = self.used(now);
        self.since = now;
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
