//! Which messages a controller gets unasked (OpenFlow 1.3.5, 6.3.5 and 7.3.10).
//!
//! A controller with the role master or equal gets all but packets whose TTL ran out; a slave gets
//! port-status only. Both lists can be changed, each on its own and for this session alone.

use overbank_openflow::{AsyncConfig, Role, RoleMasks};

/// Reasons as bits: all of them.
const ALL: u32 = 0x3f;
/// The packet-in reason for a TTL that ran out.
const INVALID_TTL: u32 = 1 << 2;

/// The two lists of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    config: AsyncConfig,
}

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packet-in.
    PacketIn,
    /// Port-status.
    PortStatus,
    /// Flow-removed.
    FlowRemoved,
    /// Role-status (1.4).
    RoleStatus,
}

impl Default for Wanted {
    fn default() -> Wanted {
        let masks = |master, slave| RoleMasks { master: Some(master), slave: Some(slave) };
        Wanted {
            config: AsyncConfig {
                packet_in: masks(ALL & !INVALID_TTL, 0),
                port_status: masks(0x7, 0x7),
                flow_removed: masks(ALL, 0),
                role_status: masks(0x7, 0x7),
                table_status: masks(0, 0),
                requestforward: masks(0, 0),
                controller_status: masks(0, 0),
            },
        }
    }
}

impl Wanted {
    /// Changes what `change` names.
    pub fn change(&mut self, change: &AsyncConfig) {
        let merge = |to: &mut RoleMasks, from: RoleMasks| {
            to.master = from.master.or(to.master);
            to.slave = from.slave.or(to.slave);
        };
        merge(&mut self.config.packet_in, change.packet_in);
        merge(&mut self.config.port_status, change.port_status);
        merge(&mut self.config.flow_removed, change.flow_removed);
        merge(&mut self.config.role_status, change.role_status);
        merge(&mut self.config.table_status, change.table_status);
        merge(&mut self.config.requestforward, change.requestforward);
        merge(&mut self.config.controller_status, change.controller_status);
    }

    /// Returns both lists.
    pub fn config(&self) -> AsyncConfig {
        self.config
    }

    /// Whether a controller in this role wants such a message with this reason.
    pub fn wants(&self, kind: Kind, role: Role, reason: u8) -> bool {
        let masks = match kind {
            Kind::PacketIn => self.config.packet_in,
            Kind::PortStatus => self.config.port_status,
            Kind::FlowRemoved => self.config.flow_removed,
            Kind::RoleStatus => self.config.role_status,
        };
        let mask = if role == Role::Slave { masks.slave } else { masks.master };
        mask.unwrap_or(0).checked_shr(reason.into()).is_some_and(|bits| bits & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slave_gets_port_status_only() {
        let wanted = Wanted::default();
        for reason in 0..3 {
            for role in [Role::Equal, Role::Master] {
                assert_eq!(wanted.wants(Kind::PacketIn, role, reason), reason != 2);
                assert!(wanted.wants(Kind::FlowRemoved, role, reason));
            }
            assert!(!wanted.wants(Kind::PacketIn, Role::Slave, reason));
            assert!(!wanted.wants(Kind::FlowRemoved, Role::Slave, reason));
            assert!(wanted.wants(Kind::PortStatus, Role::Slave, reason));
        }
        assert!(!wanted.wants(Kind::PacketIn, Role::Equal, 200));
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let mut wanted = Wanted::default();
        let packet_in = RoleMasks { master: None, slave: Some(1) };
        wanted.change(&AsyncConfig { packet_in, ..AsyncConfig::default() });
        assert!(wanted.wants(Kind::PacketIn, Role::Slave, 0));
        assert!(wanted.wants(Kind::PacketIn, Role::Equal, 1));
        assert!(wanted.wants(Kind::FlowRemoved, Role::Master, 0));
        assert_eq!(wanted.config().packet_in.slave, Some(1));
    }
}
