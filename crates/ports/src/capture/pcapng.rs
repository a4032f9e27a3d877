//! The blocks of pcapng (draft-ietf-opsawg-pcapng).
//!
//! ```text
//! any block      type u32 │ length u32 │ body, padded to 4 bytes │ length u32
//! section        byte-order magic u32, version 2 × u16, section length u64, options
//! interface      link type u16, 0 u16, snaplen u32, options
//! enhanced       interface u32, time 2 × u32, captured u32, original u32, data, options
//! obsolete       interface u16, drops u16, then as enhanced
//! simple         original u32, data                       (interface 0, no time)
//! ```
//!
//! A section sets the byte order and starts without interfaces. Blocks of other types are skipped
//! without holding them in memory. Interface indices restart with each section, as in the file:
//! joined captures of the same interfaces keep their numbers.

use super::read::{CAPTURED_LEN_MAX, Record, Source, length_message};
use super::{CaptureError, LinkType, Part};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Most bytes of a block held in memory: the largest packet with ample options.
const BLOCK_LEN_MAX: u32 = 1 << 20;
/// Most interfaces of a section: the obsolete packet block cannot name more.
const INTERFACES_MAX: usize = 1 << 16;

/// Byte order and interfaces of a section.
pub(super) struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

struct Interface {
    link_type: LinkType,
    snaplen: u32,
    clock: Clock,
}

/// Timestamp units of an interface (options if_tsresol and if_tsoffset).
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Ticks per second; saturates, and then every time is 0.
    ticks_per_s: u128,
    offset_s: i64,
}

impl Clock {
    const MICROSECONDS: Clock = Clock { ticks_per_s: 1_000_000, offset_s: 0 };

    fn set_resolution(&mut self, code: u8) {
        let exponent = u32::from(code & 0x7f);
        let base: u128 = if code & 0x80 == 0 { 10 } else { 2 };
        self.ticks_per_s = base.checked_pow(exponent).unwrap_or(u128::MAX);
    }

    /// Returns nanoseconds since 1970, clamped to 64 bits.
    fn to_ns(self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * 1_000_000_000 / self.ticks_per_s) as i128;
        let ns = ns + i128::from(self.offset_s) * 1_000_000_000;
        ns.clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// Reads the section header at the start of a file, after the four bytes of its type.
pub(super) fn first_section(source: &mut Source) -> Result<Section, CaptureError> {
    source.fill_all(4, 4, Part::Header)?;
    let mut section = Section { big_endian: false, interfaces: Vec::new() };
    let length: [u8; 4] = source.buf[..4].try_into().expect("four bytes");
    section.start(source, length)?;
    Ok(section)
}

/// Reads blocks up to and including the next packet.
pub(super) fn next_record(
    source: &mut Source,
    section: &mut Section,
) -> Result<Option<Record>, CaptureError> {
    loop {
        let part = Part::BlockAfter(source.packets);
        match source.fill(8, part)? {
            0 => return Ok(None),
            8 => {}
            got => return Err(source.truncated(part, got, 8)),
        }
        let block_type = source.u32(0, section.big_endian);
        if block_type == SECTION {
            let length: [u8; 4] = source.buf[4..8].try_into().expect("four bytes");
            section.start(source, length)?;
            continue;
        }
        let is_packet = matches!(block_type, ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET);
        let part = if is_packet { Part::Packet(source.packets + 1) } else { part };
        let length = check_length(source, source.u32(4, section.big_endian), 12, 8, part)?;
        if !is_packet && block_type != INTERFACE {
            source.skip(u64::from(length - 12), 8, length as usize, part)?;
            section.trailer(source, length, length as usize - 4, part)?;
            continue;
        }
        if length > BLOCK_LEN_MAX {
            let what = format!("a length of {length} bytes, expected at most {BLOCK_LEN_MAX}");
            return Err(source.malformed(part, 8, what));
        }
        // Body and trailing length in one read.
        let body_len = length as usize - 12;
        source.fill_all(body_len + 4, 8, part)?;
        section.same_length(source, body_len, length, part)?;
        if block_type == INTERFACE {
            section.add_interface(source, body_len, part)?;
            continue;
        }
        let record = section
            .packet(source, block_type, body_len)
            .map_err(|what| source.malformed(part, length as usize, what))?;
        source.packets += 1;
        return Ok(Some(record));
    }
}

/// Checks that a length holds at least the frame of the block, in whole words.
fn check_length(
    source: &Source,
    length: u32,
    min: u32,
    read: usize,
    part: Part,
) -> Result<u32, CaptureError> {
    if length < min || !length.is_multiple_of(4) {
        let what =
            format!("a length of {length} bytes, expected a multiple of 4 that is at least {min}");
        return Err(source.malformed(part, read, what));
    }
    Ok(length)
}

impl Section {
    /// Reads a section header after its type and length.
    fn start(&mut self, source: &mut Source, length: [u8; 4]) -> Result<(), CaptureError> {
        let part = Part::Header;
        source.fill_all(8, 8, part)?;
        let magic: [u8; 4] = source.buf[..4].try_into().expect("four bytes");
        self.big_endian = match magic {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            [a, b, c, d] => {
                let what = format!(
                    "a byte-order magic of {a:02x} {b:02x} {c:02x} {d:02x}, expected 1a 2b 3c 4d \
                     in either order"
                );
                return Err(source.malformed(part, 16, what));
            }
        };
        let length =
            if self.big_endian { u32::from_be_bytes(length) } else { u32::from_le_bytes(length) };
        check_length(source, length, 28, 16, part)?;
        let version = source.u16(4, self.big_endian);
        if version != 1 {
            let what = format!("major version {version} of pcapng, expected 1");
            return Err(source.malformed(part, 16, what));
        }
        self.interfaces.clear();
        source.skip(u64::from(length - 20), 16, length as usize, part)?;
        self.trailer(source, length, length as usize - 4, part)
    }

    /// Reads the second length of a block, of which `read` bytes were read.
    fn trailer(
        &self,
        source: &mut Source,
        length: u32,
        read: usize,
        part: Part,
    ) -> Result<(), CaptureError> {
        source.fill_all(4, read, part)?;
        self.same_length(source, 0, length, part)
    }

    /// Checks that the two lengths of a block agree; the second is at `at` of the buffer.
    fn same_length(
        &self,
        source: &Source,
        at: usize,
        length: u32,
        part: Part,
    ) -> Result<(), CaptureError> {
        let second = source.u32(at, self.big_endian);
        if second != length {
            let what = format!("two lengths, {length} and {second}, expected the same twice");
            return Err(source.malformed(part, length as usize, what));
        }
        Ok(())
    }

    fn add_interface(
        &mut self,
        source: &Source,
        body_len: usize,
        part: Part,
    ) -> Result<(), CaptureError> {
        let read = body_len + 12;
        if body_len < 8 {
            let what = format!("an interface of {body_len} bytes, expected at least 8");
            return Err(source.malformed(part, read, what));
        }
        if self.interfaces.len() == INTERFACES_MAX {
            let what = format!("one more interface, expected at most {INTERFACES_MAX}");
            return Err(source.malformed(part, read, what));
        }
        let big_endian = self.big_endian;
        let mut clock = Clock::MICROSECONDS;
        let mut at = 8;
        while at + 4 <= body_len {
            let (code, len) = (source.u16(at, big_endian), source.u16(at + 2, big_endian));
            let value = at + 4..at + 4 + usize::from(len);
            if code == 0 {
                break;
            }
            if value.end > body_len {
                let what = format!(
                    "option {code} of {len} bytes, expected at most the {} left",
                    body_len - value.start
                );
                return Err(source.malformed(part, read, what));
            }
            match (code, &source.buf[value.clone()]) {
                (9, &[resolution]) => clock.set_resolution(resolution),
                (14, bytes) if bytes.len() == 8 => {
                    let bytes = bytes.try_into().expect("eight bytes");
                    clock.offset_s = if big_endian {
                        i64::from_be_bytes(bytes)
                    } else {
                        i64::from_le_bytes(bytes)
                    };
                }
                _ => {}
            }
            at = value.end.next_multiple_of(4);
        }
        self.interfaces.push(Interface {
            link_type: LinkType(source.u16(0, big_endian)),
            snaplen: source.u32(4, big_endian),
            clock,
        });
        Ok(())
    }

    /// Returns the record of a packet block whose body is in the buffer, or what is wrong with it.
    fn packet(&self, source: &Source, block_type: u32, body_len: usize) -> Result<Record, String> {
        let header = if block_type == SIMPLE_PACKET { 4 } else { 20 };
        let Some(room) = body_len.checked_sub(header) else {
            return Err(format!("a body of {body_len} bytes, expected at least {header}"));
        };
        let u32_at = |at| source.u32(at, self.big_endian);
        let index = match block_type {
            ENHANCED_PACKET => u32_at(0),
            OBSOLETE_PACKET => u32::from(source.u16(0, self.big_endian)),
            _ => 0,
        };
        let count = self.interfaces.len();
        let Some(interface) = self.interfaces.get(index as usize) else {
            return Err(format!("interface {index}, expected one of the {count} described so far"));
        };
        let (timestamp_ns, captured, orig_len) = if block_type == SIMPLE_PACKET {
            let orig_len = u32_at(0);
            let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
            (0, orig_len.min(snaplen), orig_len)
        } else {
            let ticks = u64::from(u32_at(4)) << 32 | u64::from(u32_at(8));
            (interface.clock.to_ns(ticks), u32_at(12), u32_at(16))
        };
        if captured > CAPTURED_LEN_MAX {
            return Err(length_message(captured));
        }
        if captured as usize > room {
            return Err(format!("{captured} captured bytes, expected at most the {room} there"));
        }
        Ok(Record {
            timestamp_ns,
            interface: index,
            link_type: interface.link_type,
            orig_len,
            data: header..header + captured as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn clocks() {
        let mut clock = Clock::MICROSECONDS;
        assert_eq!(clock.to_ns(1_500_000), 1_500_000_000);
        clock.set_resolution(9);
        assert_eq!(clock.to_ns(u64::MAX), u64::MAX);
        clock.set_resolution(0x80 | 10);
        assert_eq!(clock.to_ns(512), 500_000_000);
        clock.set_resolution(0);
        assert_eq!(clock.to_ns(7), 7_000_000_000);
        assert_eq!(clock.to_ns(u64::MAX), u64::MAX);
        clock.offset_s = -6;
        assert_eq!(clock.to_ns(7), 1_000_000_000);
        assert_eq!(clock.to_ns(5), 0);
        clock.offset_s = 3;
        for code in 0..=255 {
            clock.set_resolution(code);
            let expected = if code & 0x80 == 0 { 10f64 } else { 2f64 };
            let expected = 12e9 / expected.powi(i32::from(code & 0x7f)) + 3e9;
            assert!((clock.to_ns(12) as f64 - expected).abs() <= 1.0, "code {code}");
        }
    }
}
