//! The switch with the product's pipeline and controller, over packets of virtual time.

use overbank::sketch;
use overbank_netcache::Protocol;
use overbank_netcache::agent::Letter;
use overbank_netcache::controller::{self, Controller, Watch};
use overbank_netcache::pipeline::{BURST_MAX, Config, Counts, Packet as Read, Pipeline, Table};
use overbank_netcache::pipeline::{Unread, Verdict};
use overbank_netcache::slots::VALUE_MAX;
use overbank_wire::netcache::Message;

use super::packet::{CONTROLLER, Packet, Place};
use crate::prelude::LabError;

pub(super) struct Device {
    pipeline: Pipeline,
    pub(super) controller: Controller<Place>,
    /// When the controller has something to do, in nanoseconds.
    pub(super) due: u64,
    letters: Vec<(Place, Letter)>,
    verdicts: Vec<Verdict>,
    values: Vec<[u8; VALUE_MAX]>,
    /// Messages of the protocol that were dropped.
    pub(super) dropped: u64,
}

/// What the device is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) items: usize,
    pub(super) counting: sketch::Settings,
    pub(super) controller: controller::Settings,
    pub(super) protocol: Protocol,
    pub(super) seed: u64,
}

impl Device {
    pub(super) fn new(parts: &Parts) -> Result<Device, LabError> {
        let items = parts.items.max(1);
        let config = Config { items, ..Config::default() };
        let table = Table::new(config, 1).map_err(LabError::failed)?;
        let (counter, keeper) = sketch::Config::default()
            .build(parts.seed, parts.counting)
            .map_err(LabError::failed)?;
        let (counts, hits) = Counts::new(items);
        let (reader, arrays) = (table.reader(), table.arrays());
        let pipeline =
            Pipeline::new(reader, arrays, counts, counter, parts.seed).following(parts.protocol);
        let watches = vec![Watch { keeper, hits }];
        let run = (1, parts.seed);
        let controller = Controller::new(parts.controller, table, watches, parts.counting, run);
        Ok(Device {
            pipeline,
            controller,
            due: 0,
            letters: Vec::new(),
            verdicts: vec![Verdict::Forward; BURST_MAX],
            values: vec![[0; VALUE_MAX]; BURST_MAX],
            dropped: 0,
        })
    }

    /// Decides on packets in their order; what leaves goes to `out`, with the time at which it
    /// leaves.
    pub(super) fn burst(&mut self, packets: &[Packet], out: &mut Vec<Packet>) {
        for packets in packets.chunks(BURST_MAX) {
            let read: Vec<Read<'_>> = packets
                .iter()
                .map(|packet| Read { message: packet.message(), port: packet.from })
                .collect();
            let hot = self.pipeline.burst(&read, &mut self.verdicts, &mut self.values);
            for (nth, (packet, read)) in packets.iter().zip(&read).enumerate() {
                let Packet { at, from, to, .. } = *packet;
                match self.verdicts[nth] {
                    Verdict::Forward if to == CONTROLLER => self.dropped += 1,
                    Verdict::Forward => out.push(*packet),
                    Verdict::Mark(op, stamp) => {
                        let message = Message { op, stamp, ..read.message };
                        out.push(Packet::new(at, from, to, &message));
                    }
                    Verdict::Answer { op, flags, status, stamp, len } => {
                        let value = &self.values[nth][..usize::from(len)];
                        let head = read.message.answer(op, status);
                        let message = Message { flags, stamp, value, ..head };
                        out.push(Packet::new(at, to, from, &message));
                    }
                    Verdict::Control => {
                        let letters = &mut self.letters;
                        self.controller.message(at / 1000, (from, from), &read.message, letters);
                    }
                    Verdict::Drop(Unread::WrongPort | Unread::Forged | Unread::Busy) => {
                        self.dropped += 1;
                    }
                }
                if hot >> nth & 1 == 1 {
                    let (key, letters) = (read.message.key, &mut self.letters);
                    self.controller.report(at / 1000, key, (to, to), letters);
                }
            }
            let now = packets.last().map_or(0, |packet| packet.at);
            self.settle(now, out);
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now: u64, out: &mut Vec<Packet>) {
        let next = self.controller.tick(now / 1000, &mut self.letters);
        self.due = next.saturating_mul(1000).max(now + 1000);
        self.settle(now, out);
    }

    /// The only worker is between two bursts.
    fn settle(&mut self, now: u64, out: &mut Vec<Packet>) {
        self.controller.settle(usize::MAX);
        for (to, letter) in self.letters.drain(..) {
            out.push(Packet::new(now, CONTROLLER, to, &letter.message()));
        }
    }

    /// Caches keys at their servers as if they were hot.
    pub(super) fn report(&mut self, now: u64, key: u128, server: Place, out: &mut Vec<Packet>) {
        self.controller.report(now / 1000, key, (server, server), &mut self.letters);
        self.settle(now, out);
    }
}
