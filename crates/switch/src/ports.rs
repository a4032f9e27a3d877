//! The ports of a switch as its rules see them, and the numbers of OpenFlow's reserved ports.
//!
//! [`Ports`] answers two questions of a translation: does a port exist, and which ports does a
//! flood reach? Cost: a binary search; a walk over the list. Panics: none.

/// `OFPP_IN_PORT`: back out of the ingress port.
pub const PORT_IN_PORT: u32 = 0xffff_fff8;
/// `OFPP_TABLE`: through the tables from table 0; for packets of a controller only.
pub const PORT_TABLE: u32 = 0xffff_fff9;
/// `OFPP_NORMAL`: where a learning switch would send.
pub const PORT_NORMAL: u32 = 0xffff_fffa;
/// `OFPP_FLOOD`: all ports that flood, except the ingress port.
pub const PORT_FLOOD: u32 = 0xffff_fffb;
/// `OFPP_ALL`: all ports except the ingress port.
pub const PORT_ALL: u32 = 0xffff_fffc;
/// `OFPP_CONTROLLER`: the controllers; as ingress port, the packet came from one of them.
pub const PORT_CONTROLLER: u32 = 0xffff_fffd;
/// `OFPP_LOCAL`: the port of the machine itself, if the switch has one.
pub const PORT_LOCAL: u32 = 0xffff_fffe;
/// `OFPP_ANY`: no port in particular.
pub const PORT_ANY: u32 = 0xffff_ffff;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchPort {
    /// OpenFlow port number.
    pub number: u32,
    /// Whether flooded packets leave by it.
    pub flood: bool,
}

impl From<u32> for SwitchPort {
    fn from(number: u32) -> SwitchPort {
        SwitchPort { number, flood: true }
    }
}

/// The ports of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Ascending.
    all: Vec<u32>,
    /// Those of `all` that flood.
    flood: Vec<u32>,
}

impl Ports {
    /// Returns this set of ports; of those with the same number the first counts.
    pub fn new(ports: &[SwitchPort]) -> Ports {
        let mut ports = ports.to_vec();
        ports.sort_by_key(|port| port.number);
        ports.dedup_by_key(|port| port.number);
        let flood = ports.iter().filter(|port| port.flood).map(|port| port.number).collect();
        Ports { all: ports.iter().map(|port| port.number).collect(), flood }
    }

    /// Returns whether the switch has this port.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        self.all.binary_search(&number).is_ok()
    }

    /// Returns all port numbers, ascending.
    pub fn all(&self) -> &[u32] {
        &self.all
    }

    /// Returns the numbers of the ports that flood, ascending.
    pub fn flood(&self) -> &[u32] {
        &self.flood
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_and_each_once() {
        let of = |number, flood| SwitchPort { number, flood };
        let ports = Ports::new(&[of(7, true), of(2, false), of(5, true), of(7, false)]);
        assert_eq!((ports.all(), ports.flood()), (&[2, 5, 7][..], &[5, 7][..]));
        assert!(ports.contains(2) && !ports.contains(3));
    }
}
