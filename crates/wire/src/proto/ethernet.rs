//! Ethernet II, 802.1Q and 802.1ad tags, 802.3 with LLC and SNAP.
//!
//! ```text
//!  0         6         12      (tags: TPID, TCI)   12+4n
//!  | dl_dst  | dl_src  | 0x8100 or 0x88a8, tci |.. | type or length | payload
//! ```
//!
//! Up to [`TAGS_MAX`] tags are read, or fewer if the caller asks for fewer; the TPID of the next
//! one is the frame's `dl_type`. A tag needs six bytes (TPID, TCI and the type that follows); with
//! fewer left, its TPID is the `dl_type`. TPID 0x9100 is an ordinary Ethernet type.

use super::{array, be16, chunk};
use crate::key::{DL_TYPE_NONE, FlowKey, VLAN_PRESENT};

pub(crate) const HEADER_LEN: usize = 14;
/// Offset of the type, or of the first tag.
pub(crate) const TYPE: usize = 12;
pub(crate) const TAG_LEN: usize = 4;
pub(crate) const TAGS_MAX: u8 = 2;

/// Type of the VLAN tags that are written.
pub(crate) const TPID: u16 = 0x8100;
pub(crate) const TYPE_IP4: u16 = 0x0800;
pub(crate) const TYPE_ARP: u16 = 0x0806;
pub(crate) const TYPE_RARP: u16 = 0x8035;
pub(crate) const TYPE_IP6: u16 = 0x86dd;
/// Smaller values of the type field are 802.3 lengths.
const TYPE_MIN: u16 = 0x0600;
/// LLC header that announces SNAP, with the organisation code of Ethernet.
const SNAP: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];

/// Returns whether `tpid` announces a VLAN tag.
#[inline]
pub(crate) const fn is_tpid(tpid: u16) -> bool {
    matches!(tpid, 0x8100 | 0x88a8)
}

/// Reads addresses, at most `tags_max` tags, and type. Returns the start of the payload and the
/// number of tags read; `None` without a whole Ethernet header.
#[inline]
pub(crate) fn parse(frame: &[u8], tags_max: u8, key: &mut FlowKey) -> Option<(usize, u8)> {
    let header: &[u8; HEADER_LEN] = frame.first_chunk()?;
    key.dl_dst = array(header, 0);
    key.dl_src = array(header, 6);
    let (mut at, mut tags, mut dl_type) = (TYPE, 0, be16(header, TYPE));
    let tags_max = tags_max.min(TAGS_MAX);
    while tags < tags_max && is_tpid(dl_type) {
        let Some(tag) = chunk::<6>(frame, at) else { break };
        let tci = be16(tag, 2) | VLAN_PRESENT;
        if tags == 0 {
            (key.vlan_tpid, key.vlan_tci) = (dl_type, tci);
        } else {
            (key.inner_tpid, key.inner_tci) = (dl_type, tci);
        }
        dl_type = be16(tag, 4);
        tags += 1;
        at += TAG_LEN;
    }
    at += 2;
    if dl_type < TYPE_MIN {
        dl_type = DL_TYPE_NONE;
        if let Some(llc) = chunk::<8>(frame, at)
            && llc[..6] == SNAP
        {
            at += 8;
            let snap_type = be16(llc, 6);
            if snap_type >= TYPE_MIN {
                dl_type = snap_type;
            }
        }
    }
    key.dl_type = dl_type;
    Some((at, tags))
}
