//! A session: what a controller says, one message after the other, and what it gets to hear.
//!
//! A message is carried out or answered with an error of the right type and code that quotes it;
//! the session goes on either way. Writes of a slave are refused (`IsSlave`). Only the loss of the
//! workers, or more to send than any reply can be, ends a session from here.

use std::sync::Arc;

use overbank_openflow::{
    BadRequest, Capabilities, EncodeError, ErrorCode, ErrorMessage, Features, Frame, GroupMod,
    GroupModFailed, Message, MeterMod, MeterModFailed, PortMod, PortModFailed, QueueOpFailed, Role,
    RoleState, RoleStatus, RoleStatusReason, SwitchConfig, SwitchConfigFailed, TableMod,
    TableModFailed, Version, consts::port, multipart::Request,
};

use overbank_switch::view::Fragments;

use super::asynchronous::{Kind, Wanted};
use super::buffers::Buffers;
use super::bundles::{Bundles, check_port};
use super::convert;
use super::counters::{count, uncount};
use super::outbox::Outbox;
use super::serve::{Hub, Member};
use super::statistics::Dump;
use crate::rules::Event;

/// Tables: 0 to 254.
pub(super) const TABLES: u8 = 255;
/// How often a barrier is waited for, two seconds each.
const BARRIER_TRIES: u32 = 5;
/// Bytes to send of a packet where no action says how many, until the controller says.
const MISS_SEND_LEN: u16 = 128;

/// Why a session has to end.
pub(super) type Broken = &'static str;

/// The state of a session.
pub(super) struct Session {
    pub member: Member,
    pub out: Outbox,
    pub(super) version: Version,
    pub(super) buffers: Buffers,
    pub(super) bundles: Bundles,
    wanted: Wanted,
    miss_send_len: u16,
    /// A reply that is written as the peer reads it; requests wait until it is whole.
    pub(super) dump: Option<Dump>,
    broken: Option<Broken>,
}

impl Session {
    pub fn new(member: Member, version: Version, out: Outbox) -> Session {
        let options = &member.control.options;
        Session {
            buffers: Buffers::new(options.buffers, options.buffer_bytes),
            bundles: Bundles::default(),
            wanted: Wanted::default(),
            miss_send_len: MISS_SEND_LEN,
            dump: None,
            broken: None,
            member,
            out,
            version,
        }
    }

    pub fn control(&self) -> &Arc<Hub> {
        &self.member.control
    }

    /// Whether it takes another request now.
    pub fn is_ready(&self) -> bool {
        self.dump.is_none() && self.out.len() < self.control().options.reply_bytes
    }

    /// Gives back what is counted.
    pub fn leave(&mut self) {
        uncount(&self.control().options.counters.buffers_in_use, self.buffers.used() as u64);
        self.buffers = Buffers::new(0, 0);
    }

    /// Queues a message.
    pub fn send(&mut self, message: &Message, xid: u32) {
        match self.out.push(message, self.version, xid) {
            Ok(()) => {}
            Err(EncodeError::NotInVersion { .. }) => {}
            Err(error) => {
                let control = self.control();
                if let Some(held_back) = control.lines.unwritten.now(control.switch.now_ms()) {
                    let message = message.name();
                    tracing::warn!(%error, message, held_back, "a message cannot be written");
                }
            }
        }
    }

    /// Queues an error.
    pub fn error(&mut self, error: ErrorMessage, xid: u32) {
        count(&self.control().options.counters.errors_sent, 1);
        tracing::debug!(code = %error.code, "refused a controller's message");
        self.send(&Message::Error(error), xid);
    }

    /// Carries out one message of the peer.
    pub async fn message(&mut self, frame: &Frame<'_>) -> Result<(), Broken> {
        let header = &frame.header;
        count(&self.control().options.counters.messages_in, 1);
        let done = if header.version != self.version.wire() {
            Err(BadRequest::BadVersion.into())
        } else {
            match Message::decode(self.version, header, frame.body()) {
                Ok(message) => self.carry_out(message, header.xid).await,
                Err(error) => {
                    tracing::debug!(%error, "cannot read a controller's message");
                    Err(error.code)
                }
            }
        };
        if let Err(code) = done {
            self.error(ErrorMessage::new(code, frame.bytes), header.xid);
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    async fn carry_out(&mut self, message: Message, xid: u32) -> Result<(), ErrorCode> {
        let role = self.role();
        if role == Role::Slave && writes(&message) {
            return Err(BadRequest::IsSlave.into());
        }
        match message {
            Message::Hello(_) | Message::EchoReply(_) => {}
            Message::Error(error) => {
                count(&self.control().options.counters.errors_received, 1);
                let control = self.control();
                if let Some(held_back) = control.lines.errors.now(control.switch.now_ms()) {
                    tracing::warn!(code = %error.code, held_back, "a controller sent an error");
                }
            }
            Message::EchoRequest(data) => self.send(&Message::EchoReply(data), xid),
            Message::Experimenter(_) => return Err(BadRequest::BadExperimenter.into()),
            Message::FeaturesRequest => {
                let features = self.features();
                self.send(&Message::FeaturesReply(features), xid);
            }
            Message::GetConfigRequest => {
                let config = SwitchConfig {
                    flags: frag_flags(self.control().switch.lock().fragments()),
                    miss_send_len: self.miss_send_len,
                };
                self.send(&Message::GetConfigReply(config), xid);
            }
            Message::SetConfig(config) => self.set_config(&config)?,
            Message::PacketOut(packet) => self.packet_out(packet).await?,
            Message::FlowMod(flow) => self.flow_mod(&flow).await?,
            Message::PortMod(change) => self.port_mod(&change)?,
            Message::GroupMod(group) => group_mod(&group)?,
            Message::MeterMod(meter) => meter_mod(&meter)?,
            Message::TableMod(table) => table_mod(&table)?,
            Message::MultipartRequest(request) => self.multipart(request, xid).await?,
            Message::BarrierRequest => {
                self.barrier().await;
                self.send(&Message::BarrierReply, xid);
            }
            Message::QueueGetConfigRequest { port } => {
                self.port_for_queues(port)?;
                self.send(&Message::QueueGetConfigReply { port }, xid);
            }
            Message::RoleRequest(state) => self.role_request(&state, xid)?,
            Message::GetAsyncRequest => {
                let config = self.wanted.config();
                self.send(&Message::GetAsyncReply(config), xid);
            }
            Message::SetAsync(change) => self.wanted.change(&change),
            Message::BundleControl(control) => self.bundle_control(control, xid)?,
            Message::BundleAdd(add) => self.bundle_add(&add)?,
            // Messages that only a switch sends.
            Message::FeaturesReply(_)
            | Message::GetConfigReply(_)
            | Message::PacketIn(_)
            | Message::FlowRemoved(_)
            | Message::PortStatus(_)
            | Message::MultipartReply(_)
            | Message::BarrierReply
            | Message::QueueGetConfigReply { .. }
            | Message::RoleReply(_)
            | Message::RoleStatus(_)
            | Message::GetAsyncReply(_) => return Err(BadRequest::BadType.into()),
        }
        Ok(())
    }

    fn set_config(&mut self, config: &SwitchConfig) -> Result<(), ErrorCode> {
        let wanted = match config.flags {
            SwitchConfig::FRAG_NORMAL => Fragments::Normal,
            SwitchConfig::FRAG_DROP => Fragments::Drop,
            SwitchConfig::FRAG_NX_MATCH => Fragments::NxMatch,
            // Also FRAG_REASM: nothing is put together here.
            _ => return Err(SwitchConfigFailed::BadFlags.into()),
        };
        let role = self.role();
        let mut switch = self.control().switch.lock();
        if wanted != switch.fragments() && role == Role::Slave {
            return Err(SwitchConfigFailed::Eperm.into());
        }
        switch.set_fragments(wanted);
        drop(switch);
        self.miss_send_len = config.miss_send_len;
        Ok(())
    }

    pub(super) fn role(&self) -> Role {
        self.control().roles(|roles| roles.of(self.member.id))
    }

    /// Whether such a message with this reason is to be sent to this controller.
    pub(super) fn wants(&self, kind: Kind, reason: u8) -> bool {
        self.wanted.wants(kind, self.role(), reason)
    }

    /// Waits until the workers run on what was changed.
    pub(super) async fn barrier(&mut self) {
        let control = Arc::clone(self.control());
        for _ in 0..BARRIER_TRIES {
            if control.switch.barrier().await {
                return;
            }
            tracing::warn!("the workers have not taken up the rules: a barrier waits");
        }
        self.broken = Some("the workers did not take up the rules");
    }

    fn features(&self) -> Features {
        let control = self.control();
        let mut capabilities =
            Capabilities::FLOW_STATS.0 | Capabilities::TABLE_STATS.0 | Capabilities::PORT_STATS.0;
        if self.version >= Version::V14 {
            capabilities |= Capabilities::BUNDLES.0;
        }
        Features {
            datapath_id: control.switch.lock().datapath_id(),
            // At most SLOTS_MAX.
            n_buffers: self.buffers.slots() as u32,
            n_tables: TABLES,
            auxiliary_id: 0,
            capabilities: Capabilities(capabilities),
        }
    }

    fn role_request(&mut self, state: &RoleState, xid: u32) -> Result<(), ErrorCode> {
        let id = self.member.id;
        let control = Arc::clone(self.control());
        let (reply, demoted) = control.roles(|roles| {
            let demoted = roles.set(id, state.role, state.generation_id)?;
            let generation_id = roles.generation();
            Ok::<_, ErrorCode>((RoleState { role: roles.of(id), generation_id }, demoted))
        })?;
        if let Some(other) = demoted {
            control.notify(other, RoleState { role: Role::Slave, ..reply });
        }
        self.send(&Message::RoleReply(reply), xid);
        Ok(())
    }

    /// Reports to this controller that another became master, if its version has a message for it.
    pub fn demoted(&mut self, state: RoleState) {
        if self.version >= Version::V14 && self.wanted.wants(Kind::RoleStatus, state.role, 0) {
            let status = RoleStatus {
                role: state.role,
                reason: RoleStatusReason::MasterRequest,
                generation_id: state.generation_id,
            };
            self.send(&Message::RoleStatus(status), 0);
        }
    }

    /// News of a port or a rule.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::PortStatus { reason, port } => {
                let status = convert::port::status(*reason, port);
                if self.wants(Kind::PortStatus, status.reason.to_wire()) {
                    self.send(&Message::PortStatus(status), 0);
                }
            }
            Event::FlowRemoved(gone) => {
                let removed = convert::flow::removed(gone);
                if self.wants(Kind::FlowRemoved, removed.reason.to_wire()) {
                    self.send(&Message::FlowRemoved(removed), 0);
                }
            }
        }
    }

    fn port_mod(&mut self, change: &PortMod) -> Result<(), ErrorCode> {
        let mut control = self.control().switch.lock();
        let config = check_port(&control, change)?;
        control.set_port_config(change.port, config).map_err(|_| PortModFailed::BadPort)?;
        Ok(())
    }

    /// Whether queues of this port may be asked for; there are none.
    pub(super) fn port_for_queues(&self, number: u32) -> Result<(), ErrorCode> {
        if number == port::ANY || self.has_port(number) {
            return Ok(());
        }
        Err(QueueOpFailed::BadPort.into())
    }

    pub(super) fn has_port(&self, number: u32) -> bool {
        self.control().switch.lock().has_port(number)
    }
}

fn frag_flags(fragments: Fragments) -> u16 {
    match fragments {
        Fragments::Normal => SwitchConfig::FRAG_NORMAL,
        Fragments::Drop => SwitchConfig::FRAG_DROP,
        Fragments::NxMatch => SwitchConfig::FRAG_NX_MATCH,
    }
}

/// Whether a message changes the switch or sends packets, which a slave must not.
fn writes(message: &Message) -> bool {
    match message {
        Message::PacketOut(_)
        | Message::FlowMod(_)
        | Message::GroupMod(_)
        | Message::PortMod(_)
        | Message::MeterMod(_)
        | Message::TableMod(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_) => true,
        Message::MultipartRequest(request) => {
            matches!(&request.body, Request::TableFeatures(tables) if !tables.is_empty())
        }
        _ => false,
    }
}

/// Refuses to add or modify groups: none are supported.
fn group_mod(group: &GroupMod) -> Result<(), ErrorCode> {
    match group.command {
        GroupMod::ADD => Err(GroupModFailed::OutOfGroups.into()),
        GroupMod::DELETE => Ok(()),
        GroupMod::MODIFY | 3 | 5 => Err(GroupModFailed::UnknownGroup.into()),
        _ => Err(GroupModFailed::BadCommand.into()),
    }
}

/// Refuses to add or modify meters: none are supported.
fn meter_mod(meter: &MeterMod) -> Result<(), ErrorCode> {
    match meter.command {
        0 => Err(MeterModFailed::OutOfMeters.into()),
        1 => Err(MeterModFailed::UnknownMeter.into()),
        MeterMod::DELETE => Ok(()),
        _ => Err(MeterModFailed::BadCommand.into()),
    }
}

/// Accepts the present settings of tables alone: no eviction, no vacancy events.
fn table_mod(table: &TableMod) -> Result<(), ErrorCode> {
    /// Bits of old versions that mean nothing any more.
    const MISS_MASK: u32 = 3;
    if table.config & !MISS_MASK != 0 { Err(TableModFailed::BadConfig.into()) } else { Ok(()) }
}
