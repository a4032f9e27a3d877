//! What the forwarding table maps: an address in a VLAN to a port, in 16 bits.
//!
//! ```text
//!   15       14        9 8           0
//!   │ static │  epoch   │   port     │     epoch: when the station was heard of last, modulo 64
//! ```
//!
//! With [`MacAddr`] an entry takes 8 bytes and a bucket has seven of them: a billion entries in
//! 8.97 GiB. With [`MacVlan`] a bucket has five, 13.5 bytes an entry at 95 %.

use overbank::fib::{Key, MacAddr, MacVlan};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports that a [`Station`] can name, at most.
pub const STATION_PORTS_MAX: usize = 1 << PORT_BITS;

const PORT_BITS: u32 = 9;
const EPOCH_BITS: u32 = 6;
const STATIC: u16 = 1 << (PORT_BITS + EPOCH_BITS);

/// Number of distinct epochs.
pub(super) const EPOCHS: u16 = 1 << EPOCH_BITS;

/// The value of an entry: port, time, and whether it is static. [`Station::bits`] is what the table
/// holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station(u16);

impl Station {
    /// Returns a station seen behind `port` in this epoch. Uses the low bits of both numbers.
    #[inline]
    pub const fn learnt(port: u16, epoch: u16) -> Station {
        Station((epoch & (EPOCHS - 1)) << PORT_BITS | port & ((1 << PORT_BITS) - 1))
    }

    /// Returns a station configured behind `port`: it neither ages nor moves.
    #[inline]
    pub const fn fixed(port: u16) -> Station {
        Station(STATIC | port & ((1 << PORT_BITS) - 1))
    }

    /// Returns the station of a table's value.
    #[inline]
    pub const fn from_bits(bits: u16) -> Station {
        Station(bits)
    }

    /// Returns the value for a table.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the index of its port in the list of ports.
    #[inline]
    pub const fn port(self) -> u16 {
        self.0 & ((1 << PORT_BITS) - 1)
    }

    /// Whether it was configured.
    #[inline]
    pub const fn is_static(self) -> bool {
        self.0 & STATIC != 0
    }

    /// Epochs since its last report, modulo 64.
    #[inline]
    pub const fn epochs_silent(self, now: u16) -> u16 {
        now.wrapping_sub(self.0 >> PORT_BITS) & (EPOCHS - 1)
    }

    /// Returns the news of a frame from this station that arrived on `port` in epoch `now`; `found`
    /// is its entry in the table.
    #[inline]
    pub fn heard(found: Option<Station>, port: u16, now: u16) -> Heard {
        let Some(station) = found else { return Heard::News(News::Unknown) };
        if station.port() != port {
            return if station.is_static() { Heard::Elsewhere } else { Heard::News(News::Moved) };
        }
        if station.is_static() || station.epochs_silent(now) == 0 {
            return Heard::Known;
        }
        Heard::News(News::Silent)
    }
}

/// Whether a frame has news about its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The table is up to date.
    Known,
    /// A worker should report this to the writer.
    News(News),
    /// The address is configured behind another port.
    Elsewhere,
}

/// News about a station for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It is not in the table.
    Unknown,
    /// It is behind another port now.
    Moved,
    /// It is behind the same port, and this is its first frame of the epoch.
    Silent,
}

/// A station that was seen behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting<K = MacVlan> {
    /// Its address and VLAN.
    pub key: K,
    /// Place of the port that its frame came in on.
    pub port: u16,
    /// What is new about it.
    pub news: News,
}

/// Reads an address as people write it: six bytes of two hexadecimal digits, with colons.
pub fn mac_of(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+'))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// A key made from an address and a VLAN.
pub trait Address: Key {
    /// Returns the key of an address in a VLAN.
    fn of(mac: [u8; 6], vlan: u16) -> Self;
}

/// One table for all VLANs: the VLAN is ignored.
impl Address for MacAddr {
    #[inline(always)]
    fn of(mac: [u8; 6], _vlan: u16) -> MacAddr {
        MacAddr::from_bytes(mac)
    }
}

/// Each VLAN has separate addresses.
impl Address for MacVlan {
    #[inline(always)]
    fn of(mac: [u8; 6], vlan: u16) -> MacVlan {
        MacVlan::new(mac, vlan)
    }
}

/// The current epoch, published by the writer of the table to all readers. A reader that sees it
/// late misses that a station was silent, or reports it once more. Neither harms, so relaxed
/// ordering is enough.
#[derive(Clone, Debug, Default)]
pub struct Epoch(Arc<AtomicU16>);

impl Epoch {
    /// Returns the number of the epoch, modulo 64.
    #[inline]
    pub fn now(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }

    /// Says which one it is.
    pub fn set(&self, epoch: u16) {
        self.0.store(epoch % EPOCHS, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_has_three_parts() {
        for port in [0, 1, 255, 511] {
            for epoch in [0, 1, 63] {
                let station = Station::learnt(port, epoch);
                assert_eq!((station.port(), station.is_static()), (port, false));
                assert_eq!(station.epochs_silent(epoch), 0);
                assert_eq!(station.epochs_silent(epoch + 9), 9);
                assert_eq!(Station::from_bits(station.bits()), station);
            }
            assert_eq!(
                (Station::fixed(port).port(), Station::fixed(port).is_static()),
                (port, true)
            );
        }
        assert_eq!(Station::learnt(3, 63).epochs_silent(2), 3, "epochs go round");
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        assert_eq!(mac_of("02:00:0a:FF:00:01"), Some([2, 0, 10, 255, 0, 1]));
        for wrong in
            ["", "02:00:0a:ff:00", "02:00:0a:ff:00:01:02", "2:0:a:ff:0:1", "02:00:0a:ff:00:+1"]
        {
            assert_eq!(mac_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_frame_reports_its_source() {
        let heard = |found, port, now| Station::heard(found, port, now);
        let known = Some(Station::learnt(3, 5));
        assert_eq!(heard(None, 3, 5), Heard::News(News::Unknown));
        assert_eq!(heard(known, 3, 5), Heard::Known);
        assert_eq!(heard(known, 3, 6), Heard::News(News::Silent));
        assert_eq!(heard(known, 4, 5), Heard::News(News::Moved));
        assert_eq!(heard(Some(Station::fixed(3)), 3, 9), Heard::Known);
        assert_eq!(heard(Some(Station::fixed(3)), 4, 9), Heard::Elsewhere);
    }
}
