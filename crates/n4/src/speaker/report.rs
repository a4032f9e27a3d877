//! Session reports: usage at thresholds, Error Indications; sent again until they are answered.

use super::step::Step;
use super::{Out, Report, Speaker};
use crate::message::{Received, emit, find};
use crate::store::Store;
use rs_pfcp::ie::cause::{Cause, CauseValue};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::report_type::ReportType;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use std::net::{IpAddr, SocketAddr};

/// Reports without an answer.
const REPORTS_MAX: usize = 1024;
/// Time until a request is sent again, and how often (T1 and N1 of the standard).
pub(super) const T1_MS: u64 = 3_000;
pub(super) const N1: u32 = 3;
/// Time between two reports of Error Indications for a session.
const QUIET_MS: u64 = 10_000;

impl Speaker {
    /// Sends reports and heartbeats that are due, and repeats those without an answer.
    pub fn tick(&mut self, now_ms: u64, store: &mut dyn Store, out: &mut Vec<Out>) {
        for _ in 0..self.watched.len().min(store.looks()) {
            let Some(seid) = self.watched.pop_front() else { break };
            let Some(record) = self.sessions.get_mut(&seid) else { continue };
            if record.kept.rules.urrs.is_empty() || record.kept.ending {
                record.watched = false;
                continue;
            }
            self.watched.push_back(seid);
            if !self.busy.contains(&seid) {
                self.go(None, Step::Look(seid), now_ms, store, out);
            }
        }
        self.end_again(now_ms, store, out);
        self.beat(now_ms, out);
        for _ in 0..self.reports.len() {
            let Some(mut report) = self.reports.pop_front() else { break };
            if report.due_ms > now_ms {
                self.reports.push_back(report);
            } else if report.left == 0 {
                self.totals.reports_lost += 1;
            } else {
                report.left -= 1;
                report.due_ms = now_ms + T1_MS;
                out.push(Out::Send { to: report.to, bytes: report.bytes.clone() });
                self.reports.push_back(report);
            }
        }
    }

    /// Reports that a peer has no tunnel for a session, at most once in ten seconds.
    pub fn error_indication(&mut self, peer: IpAddr, teid: u32, now_ms: u64, out: &mut Vec<Out>) {
        let Some(&seid) = self.by_peer.get(&(peer, teid)) else { return };
        let Some(record) = self.sessions.get_mut(&seid) else { return };
        if now_ms < record.quiet_until_ms {
            return;
        }
        record.quiet_until_ms = now_ms + QUIET_MS;
        let fteid = match peer {
            IpAddr::V4(v4) => Fteid::ipv4(teid, v4),
            IpAddr::V6(v6) => Fteid::ipv6(teid, v6),
        };
        let ies = [
            ReportType::error_indication_report().to_ie(),
            Ie::new_grouped(IeType::ErrorIndicationReport, vec![fteid.to_ie()]),
        ];
        self.send_report(seid, &ies, now_ms, out);
    }

    pub(super) fn send_report(&mut self, seid: u64, ies: &[Ie], now_ms: u64, out: &mut Vec<Out>) {
        let Some(record) = self.sessions.get(&seid) else { return };
        if self.reports.len() >= REPORTS_MAX {
            self.totals.reports_lost += 1;
            return;
        }
        let (to, seid_there) = (record.kept.to, record.kept.cp_seid);
        let sequence = self.next_sequence();
        let bytes = emit(MsgType::SessionReportRequest, Some(seid_there), sequence, ies);
        out.push(Out::Send { to, bytes: bytes.clone() });
        self.totals.reports += 1;
        let due_ms = now_ms + T1_MS;
        self.reports.push_back(Report { sequence, to, bytes, due_ms, left: N1, session: seid });
    }

    /// Takes the answer to a report.
    pub(super) fn reported(
        &mut self,
        answer: &Received,
        from: SocketAddr,
        now_ms: u64,
        store: &mut dyn Store,
        out: &mut Vec<Out>,
    ) {
        let is_it =
            |report: &Report| report.sequence == answer.sequence && report.to.ip() == from.ip();
        let Some(at) = self.reports.iter().position(is_it) else {
            self.totals.garbage += 1;
            return;
        };
        let Some(report) = self.reports.remove(at) else { return };
        let cause = answer.ies.as_ref().ok().and_then(|ies| find(ies, IeType::Cause));
        let unknown = cause.is_some_and(|ie| {
            Cause::unmarshal(&ie.payload)
                .is_ok_and(|cause| cause.value == CauseValue::SessionContextNotFound)
        });
        // The control plane has no such session: neither should we.
        if unknown {
            let step = Step::Forget { id: report.session, removal: None };
            self.go(None, step, now_ms, store, out);
        }
    }
}
