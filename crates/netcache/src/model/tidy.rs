//! Fewer states: what can change nothing any more is dropped, and numbers begin anew.
//!
//! - An answer to what the agent does not ask any more: it compares run and number.
//! - An update with a stamp before the device's last one, which only grows, if its answer is such.
//! - What only the controller reads, and RESUME of another run.
//! - A write at the agent without a stamp that is applied: the store keeps its name.
//!
//! What the agent asks the device has the numbers from 1 on, whatever was asked before has 0: they
//! are compared with each other alone.

use super::{Bytes, To, World, bytes};
use overbank_wire::netcache::{Message, Op};

impl World {
    /// Makes states equal that nothing tells apart any more.
    pub fn tidy(&mut self) {
        let asked = self.agent.renumber();
        self.said = asked.len() as u64;
        if let Some((to, letter, entry)) = self.slow.take() {
            let letter = self.numbered(&asked, letter);
            self.slow = Some((to, letter, entry));
        }
        let network = std::mem::take(&mut self.network).into_iter();
        let numbered = network.map(|(to, letter)| (to, self.numbered(&asked, letter)));
        self.network = numbered.filter(|(to, letter)| self.may_matter(*to, letter)).collect();
    }

    fn numbered(&self, asked: &[u64], letter: Bytes) -> Bytes {
        let message = Message::parse(&letter).expect("ours");
        if !matches!(message.op, Op::Fence | Op::Update | Op::FenceOk | Op::UpdateOk) {
            return letter;
        }
        let is_of_run = message.client == self.epoch;
        let nth = asked.iter().position(|number| is_of_run && *number == message.request);
        let [client, request] = nth.map_or([0; 2], |nth| [self.epoch, nth as u64 + 1]);
        if [client, request] == [message.client, message.request] {
            return letter;
        }
        bytes(&Message { client, request, ..message })
    }

    fn may_matter(&self, to: To, letter: &[u8]) -> bool {
        let message = Message::parse(letter).expect("ours");
        let is_asked = message.client == self.epoch;
        match message.op {
            Op::FenceOk | Op::UpdateOk => is_asked,
            Op::Update => is_asked || message.stamp >= self.device.stamp(),
            Op::Adopted | Op::Refresh => false,
            Op::Resume => message.request == self.epoch,
            Op::Put | Op::Delete if to == To::Agent => {
                !self.applied.contains(&(message.client, message.request))
            }
            _ => true,
        }
    }
}
