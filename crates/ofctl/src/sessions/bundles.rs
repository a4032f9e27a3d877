//! Bundles: flow-mods and port-mods that are done all together or not at all (OpenFlow 1.4.1, 6.8).
//!
//! ```text
//!   open ──▶ add … add ──▶ close ──▶ commit      add checks each message and refuses it at once
//!     └────────┴─────────────┴────▶ discard      commit does them in order, under one lock
//! ```
//! All bundles are atomic and ordered, whatever their flags say. The workers take the change as a
//! whole. If one message of it is refused, nothing is changed; the error of that message is sent,
//! then `MsgFailed` for the commit.
//!
//! Limits: bundles of a session, messages in all of them.

use std::collections::BTreeMap;

use overbank_openflow::{
    BUFFER_NONE, BundleAdd, BundleControl, BundleFailed, ErrorCode, ErrorMessage, HEADER_LEN,
    Header, Message, PortMod, PortModFailed,
};

use super::convert;
use super::counters::count;
use super::flows::Checked;
use super::session::Session;
use crate::rules::PortConfig;
use crate::rules::RuleControl;

const OPEN: u16 = 0;
const CLOSE: u16 = 2;
const COMMIT: u16 = 4;
const DISCARD: u16 = 6;
/// Atomic and ordered.
const FLAGS: u16 = 3;

/// The open bundles of a session.
#[derive(Default)]
pub(super) struct Bundles {
    open: BTreeMap<u32, Bundle>,
    messages: usize,
}

struct Bundle {
    flags: u16,
    closed: bool,
    steps: Vec<Step>,
}

/// One message of a bundle.
struct Step {
    what: What,
    xid: u32,
    /// Its start, for an error.
    quote: Vec<u8>,
}

enum What {
    Flow(Checked),
    Port(PortMod),
}

impl Session {
    pub(super) fn bundle_control(
        &mut self,
        control: BundleControl,
        xid: u32,
    ) -> Result<(), ErrorCode> {
        let BundleControl { bundle: id, kind, flags } = control;
        if flags & !FLAGS != 0 {
            return Err(BundleFailed::BadFlags.into());
        }
        match kind {
            OPEN => self.bundle_open(id, flags)?,
            CLOSE => {
                let bundle = self.bundle(id, flags)?;
                if bundle.closed {
                    return Err(BundleFailed::BundleClosed.into());
                }
                bundle.closed = true;
            }
            COMMIT => {
                self.bundle(id, flags)?;
                self.bundle_commit(id)?;
            }
            DISCARD => {
                self.bundle_take(id).ok_or(BundleFailed::BadId)?;
            }
            _ => return Err(BundleFailed::BadType.into()),
        }
        let reply = BundleControl { bundle: id, kind: kind + 1, flags };
        self.send(&Message::BundleControl(reply), xid);
        Ok(())
    }

    fn bundle_open(&mut self, id: u32, flags: u16) -> Result<(), ErrorCode> {
        if self.bundle_take(id).is_some() {
            // As the specification has it: the old one is gone.
            return Err(BundleFailed::BundleExist.into());
        }
        if self.bundles.open.len() >= self.control().options.bundles {
            count(&self.control().options.counters.bundles_refused, 1);
            return Err(BundleFailed::OutOfBundles.into());
        }
        let bundle = Bundle { flags, closed: false, steps: Vec::new() };
        self.bundles.open.insert(id, bundle);
        Ok(())
    }

    fn bundle(&mut self, id: u32, flags: u16) -> Result<&mut Bundle, ErrorCode> {
        match self.bundles.open.get_mut(&id) {
            None => Err(BundleFailed::BadId.into()),
            Some(bundle) if bundle.flags != flags => Err(BundleFailed::BadFlags.into()),
            Some(bundle) => Ok(bundle),
        }
    }

    fn bundle_take(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.bundles.open.remove(&id)?;
        self.bundles.messages -= bundle.steps.len();
        Some(bundle)
    }

    pub(super) fn bundle_add(&mut self, add: &BundleAdd) -> Result<(), ErrorCode> {
        let messages_max = self.control().options.bundle_messages;
        if !self.bundles.open.contains_key(&add.bundle) {
            // As the specification has it: adding opens.
            self.bundle_open(add.bundle, add.flags)?;
        }
        if self.bundle(add.bundle, add.flags)?.closed {
            return Err(BundleFailed::BundleClosed.into());
        }
        if self.bundles.messages >= messages_max {
            count(&self.control().options.counters.bundle_messages_refused, 1);
            return Err(BundleFailed::MsgTooMany.into());
        }
        let header = Header::parse(&add.message).ok_or(BundleFailed::MsgBadLen)?;
        if header.version != self.version.wire() {
            return Err(BundleFailed::MsgUnsup.into());
        }
        let decoded = Message::decode(self.version, &header, &add.message[HEADER_LEN..]);
        let what = match decoded.map_err(|error| error.code)? {
            // Whose packet it is would be decided at the commit.
            Message::FlowMod(flow) if flow.buffer_id != BUFFER_NONE => {
                return Err(BundleFailed::MsgUnsup.into());
            }
            Message::FlowMod(flow) => What::Flow(Checked::of(&flow)?),
            Message::PortMod(change) => What::Port(change),
            _ => return Err(BundleFailed::MsgUnsup.into()),
        };
        let quote = ErrorMessage::new(BundleFailed::MsgFailed, &add.message).data;
        let step = Step { what, xid: header.xid, quote };
        self.bundle(add.bundle, add.flags)?.steps.push(step);
        self.bundles.messages += 1;
        Ok(())
    }

    fn bundle_commit(&mut self, id: u32) -> Result<(), ErrorCode> {
        let bundle = self.bundle_take(id).ok_or(BundleFailed::BadId)?;
        let done = commit(bundle.steps, &mut self.control().switch.lock());
        let flows = match done {
            Ok(flows) => flows,
            Err((xid, error)) => {
                self.error(error, xid);
                return Err(BundleFailed::MsgFailed.into());
            }
        };
        count(&self.control().options.counters.flow_mods, flows);
        Ok(())
    }
}

/// Does all steps, or none; gives the number of flow-mods, or the error of the step that failed.
fn commit(steps: Vec<Step>, control: &mut RuleControl) -> Result<u64, (u32, ErrorMessage)> {
    let mut flows = 0;
    let mut ports = Vec::new();
    control.transaction(|control| {
        for Step { what, xid, quote } in steps {
            let done = match what {
                What::Flow(checked) => {
                    flows += 1;
                    checked.apply(control).map_err(|refused| convert::flow::refusal(&refused))
                }
                What::Port(change) => check_port(control, &change)
                    .map(|_| ports.push(change))
                    .map_err(ErrorCode::from),
            };
            done.map_err(|code| (xid, ErrorMessage { code, data: quote }))?;
        }
        Ok(())
    })?;
    // Settings of ports are not part of the transaction; but nothing can go wrong with them now:
    // the check depends on the change and on the port's address alone.
    for change in ports {
        let config = check_port(control, &change).expect("checked above, under the same lock");
        control.set_port_config(change.port, config).expect("the port exists");
    }
    Ok(flows)
}

/// Checks a port-mod and returns the setting that it results in.
pub(super) fn check_port(
    control: &RuleControl,
    change: &PortMod,
) -> Result<PortConfig, PortModFailed> {
    let (mac, now) = control.port_config(change.port).ok_or(PortModFailed::BadPort)?;
    convert::port::changed(mac, now, change)
}
