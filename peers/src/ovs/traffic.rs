//! The file of flow ids, and perhaps frames, that all contestants read.

// Mapping a file is a call into the C library, and the ids are read from its bytes.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use anyhow::{Context, Result, bail};
use overbank_kit::explosion::{self, Frame};
use overbank_kit::traffic::{CLASSES_MAX, FRAME_LEN, FlowTuple, OUTPUT_PORTS, Traffic};
use overbank_kit::workload::FlowStream;

use crate::folder::Folder;

const MAGIC: &[u8; 8] = b"OBFLOWS1";
const HEADER: usize = 16;
/// The port of traffic with more masks.
const OUTPUT: u32 = OUTPUT_PORTS[0];
/// Different packets of an attack: as many as the larger caches have entries.
const ATTACK_FRAMES: usize = 1 << 20;

/// A file, mapped while this lives.
pub struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; the only writer is another process, and readers of such bytes use volatile
// reads (`Map::word`).
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the whole file for reading.
    pub fn open(path: &Path) -> Result<Map> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let len = usize::try_from(file.metadata()?.len())?;
        // SAFETY: a fresh mapping; the address is the kernel's choice.
        let start = unsafe {
            let (read, kind) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_POPULATE);
            libc::mmap(std::ptr::null_mut(), len, read, kind, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map the file");
        }
        Ok(Map { start: NonNull::new(start.cast()).context("a mapping at 0")?, len })
    }

    /// Returns the eight bytes from word `index` on, as they are now.
    pub fn word(&self, index: usize) -> u64 {
        assert!(index < self.len / 8, "within the file");
        // SAFETY: in bounds (above), aligned to a page plus words; volatile, since the writer is
        // another process.
        unsafe { self.start.cast::<u64>().add(index).read_volatile() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// In a sequence of listed frames: the next frame of the attack.
const NEXT_OF_ATTACK: u32 = u32::MAX;

/// What frames look like.
enum Frames {
    /// An id is a flow.
    Flows(Traffic),
    /// An id is a flow, whose source has one of this many classes as well.
    Crossed(Traffic, u32),
    /// An id is a place in the list of others, or [`NEXT_OF_ATTACK`].
    Listed { others: Vec<Frame>, attack: Vec<Frame> },
}

/// Where a reader of the sequence is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    next: usize,
    next_of_attack: usize,
}

/// The sequence of packets of one workload, and the rules for them.
pub struct Ids {
    _folder: Folder,
    path: PathBuf,
    map: Map,
    frames: Frames,
    rules: String,
    outputs: &'static [u32],
    log2: u32,
}

impl Ids {
    /// Draws 2^`log2` ids into a private file; the rules send to the first `outputs` ports.
    pub fn write(mut stream: FlowStream, log2: u32, outputs: usize) -> Result<Ids> {
        let traffic = Traffic::default();
        let all = traffic.rules();
        let outputs = OUTPUT_PORTS.get(..outputs).filter(|ports| !ports.is_empty());
        let outputs = outputs.context("1 to 4 output ports")?;
        // With fewer ports, those take turns instead.
        let instead = |rules: String, (nth, port): (usize, &u32)| {
            let instead = outputs[nth % outputs.len()];
            rules.replace(&format!("output:{port}\n"), &format!("output:{instead}\n"))
        };
        let rules = OUTPUT_PORTS.iter().enumerate().skip(outputs.len()).fold(all, instead);
        Ids::made(Frames::Flows(traffic), rules, outputs, log2, |ids| stream.fill(ids))
    }

    /// Draws as [`Self::write`] does, of flows on `masks` masks (a multiple of those of the
    /// built-in traffic), to one port.
    pub fn of_masks(mut stream: FlowStream, log2: u32, masks: u32) -> Result<Ids> {
        let traffic = Traffic::default();
        let sources = masks / traffic.classes();
        if sources * traffic.classes() != masks || !(1..=CLASSES_MAX).contains(&sources) {
            bail!("{masks} masks: must be a multiple of {}, at most 620", traffic.classes());
        }
        if sources == 1 {
            return Ids::write(stream, log2, 1);
        }
        let rule = |class| {
            let source = |source| {
                let [from, to] = [source, class].map(prefix);
                format!("priority=100,udp,nw_src={from},nw_dst={to},actions=output:{OUTPUT}\n")
            };
            (0..sources).map(source).collect::<String>()
        };
        let rules = (0..traffic.classes()).map(rule).collect();
        let frames = Frames::Crossed(traffic, sources);
        Ids::made(frames, rules, &OUTPUT_PORTS[..1], log2, |ids| stream.fill(ids))
    }

    /// The attack of [`overbank_kit::explosion`] as `percent` of the packets, among those of
    /// `flows` others.
    pub fn explosion(
        fields: usize,
        percent: f64,
        flows: usize,
        log2: u32,
        seed: u64,
    ) -> Result<Ids> {
        let frames = Frames::Listed {
            others: explosion::others(flows, seed),
            attack: explosion::attack(fields, ATTACK_FRAMES, seed),
        };
        let between = explosion::between(percent);
        let mut others = FlowStream::uniform(u32::try_from(flows)?, seed)?;
        let mut nth = 0usize;
        let fill = |ids: &mut [u32]| {
            others.fill(ids);
            for id in ids {
                nth += 1;
                if between.is_some_and(|between| nth.is_multiple_of(between + 1)) {
                    *id = NEXT_OF_ATTACK;
                }
            }
        };
        Ids::made(frames, explosion::rules(fields), &OUTPUT_PORTS[..fields], log2, fill)
    }

    fn made(
        frames: Frames,
        rules: String,
        outputs: &'static [u32],
        log2: u32,
        mut fill: impl FnMut(&mut [u32]),
    ) -> Result<Ids> {
        let folder = Folder::new("ids")?;
        let path = folder.path().join("ids");
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let mut file = BufWriter::new(file);
        file.write_all(MAGIC)?;
        let classes = match &frames {
            Frames::Flows(traffic) => traffic.classes(),
            Frames::Crossed(traffic, sources) => traffic.classes() | sources << 8,
            Frames::Listed { .. } => 0,
        };
        file.write_all(&classes.to_ne_bytes())?;
        file.write_all(&log2.to_ne_bytes())?;
        let mut ids = vec![0u32; 1 << log2.min(16)];
        for _ in 0..(1u64 << log2) / ids.len() as u64 {
            fill(&mut ids);
            ids.iter().try_for_each(|id| file.write_all(&id.to_ne_bytes())).context("sequence")?;
        }
        if let Frames::Listed { others, attack } = &frames {
            for list in [others, attack] {
                file.write_all(&u32::try_from(list.len())?.to_ne_bytes())?;
            }
            for list in [others, attack] {
                file.write_all(list.as_flattened()).context("the list of frames")?;
            }
        }
        file.into_inner().context("the sequence of packets")?;
        let map = Map::open(&path)?;
        Ok(Ids { _folder: folder, path, map, frames, rules, outputs, log2 })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ports that packets leave by.
    pub fn outputs(&self) -> &'static [u32] {
        self.outputs
    }

    pub fn rules(&self) -> &str {
        &self.rules
    }

    /// Share of the packets that are the attack's.
    pub fn attack_share(&self) -> f64 {
        let attack = matches!(self.frames, Frames::Listed { .. });
        let count = self.get().iter().filter(|&&id| attack && id == NEXT_OF_ATTACK).count();
        count as f64 / self.get().len() as f64
    }

    /// The sequence.
    fn get(&self) -> &[u32] {
        // SAFETY: the file has whole ids from the aligned byte 16 on, 2^log2 of them, and
        // nothing writes to it after `made`: it lies in a private folder.
        unsafe {
            let first = self.map.start.as_ptr().add(HEADER).cast::<u32>();
            std::slice::from_raw_parts(first, 1 << self.log2)
        }
    }

    /// Writes the next frames.
    #[inline]
    pub fn write_frames<'a>(
        &self,
        place: &mut Place,
        frames: impl Iterator<Item = &'a mut [u8; FRAME_LEN]>,
    ) {
        let ids = self.get();
        let ids = (place.next..).map(|at| ids[at & (ids.len() - 1)]);
        match &self.frames {
            Frames::Flows(traffic) => {
                for (frame, id) in frames.zip(ids) {
                    traffic.write_frame(id, frame);
                    place.next += 1;
                }
            }
            Frames::Crossed(traffic, sources) => {
                for (frame, id) in frames.zip(ids) {
                    crossed(traffic, *sources, id).write_frame(frame);
                    place.next += 1;
                }
            }
            Frames::Listed { others, attack } => {
                for (frame, id) in frames.zip(ids) {
                    *frame = if id == NEXT_OF_ATTACK {
                        let nth = place.next_of_attack;
                        place.next_of_attack = if nth + 1 == attack.len() { 0 } else { nth + 1 };
                        attack[nth]
                    } else {
                        others[id as usize]
                    };
                    place.next += 1;
                }
            }
        }
    }
}

/// Returns flow `id` of the built-in traffic with a class of its source, which its ports choose.
fn crossed(traffic: &Traffic, sources: u32, id: u32) -> FlowTuple {
    let tuple = traffic.flow_tuple(id);
    let low = u32::MAX >> (u32::from(tuple.tp_src ^ tuple.tp_dst) % sources + 1);
    FlowTuple { nw_src: !(low << 1 | 1) | tuple.nw_src & low, ..tuple }
}

/// Returns the prefix of a class: as many ones, and a zero.
fn prefix(class: u32) -> String {
    let ones = u32::MAX.checked_shl(32 - class).unwrap_or(0);
    format!("{}/{}", Ipv4Addr::from(ones), class + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_the_sequence_of_the_stream() {
        let stream = FlowStream::zipf(1000, 0.99, 3).unwrap();
        let ids = Ids::write(stream.clone(), 12, 4).unwrap();
        let drawn: Vec<u32> = stream.take(1 << 12).collect();
        assert_eq!(ids.get(), drawn);
        assert_eq!(ids.map.word(0).to_ne_bytes(), *MAGIC);
        let folder = ids.path().parent().unwrap().to_owned();
        assert!(folder.exists());
        drop(ids);
        assert!(!folder.exists());
    }

    #[test]
    fn rules_send_to_the_ports_that_there_are() {
        let stream = FlowStream::uniform(10, 1).unwrap();
        let four = Ids::write(stream.clone(), 10, 4).unwrap();
        assert_eq!(four.rules(), Traffic::default().rules());
        let one = Ids::write(stream.clone(), 10, 1).unwrap();
        assert_eq!((one.rules().matches("output:2\n").count(), one.outputs()), (20, &[2][..]));
        assert!(Ids::write(stream.clone(), 10, 0).is_err());
        assert!(Ids::write(stream, 10, 5).is_err());
    }

    unsafe extern "C" {
        /// What the plugin writes to a buffer of Open vSwitch.
        fn peers_write_frame(frame: *mut [u8; FRAME_LEN], id: u32, classes: u32);
        fn peers_write_listed(
            frame: *mut [u8; FRAME_LEN],
            id: u32,
            frames: *const Frame,
            others: u32,
            attack: u32,
            next: *mut u32,
        );
    }

    #[test]
    fn an_attack_has_its_share_and_both_switches_get_it() {
        let ids = Ids::explosion(3, 10.0, 100, 12, 5).unwrap();
        assert!((ids.attack_share() - 0.1).abs() < 0.001);
        let bytes = std::fs::read(ids.path()).unwrap();
        let list = &bytes[HEADER + (4 << 12)..];
        assert_eq!(list.len(), 8 + (100 + ATTACK_FRAMES) * FRAME_LEN);
        let (frames, _) = list[8..].as_chunks::<FRAME_LEN>();
        // Once and a half through the sequence: the attack goes on where it was.
        let (mut place, mut next) = (Place::default(), 0);
        for &id in ids.get().iter().chain(&ids.get()[..1 << 11]) {
            let [mut ours, mut theirs] = [[0; FRAME_LEN], [0xff; FRAME_LEN]];
            ids.write_frames(&mut place, std::iter::once(&mut ours));
            let (list, attack) = (frames.as_ptr(), ATTACK_FRAMES as u32);
            // SAFETY: writes the bytes of one frame, which it reads from the list.
            unsafe { peers_write_listed(&mut theirs, id, list, 100, attack, &mut next) };
            assert_eq!(ours, theirs);
        }
        assert_eq!((place.next_of_attack, next), (409 + 204, 409 + 204));
        assert_eq!(Ids::explosion(2, 0.0, 10, 10, 5).unwrap().attack_share(), 0.0);
    }

    #[test]
    fn both_switches_get_the_same_frames() {
        let [mut ours, mut theirs] = [[0; FRAME_LEN], [0xff; FRAME_LEN]];
        for classes in 1..=31 {
            let traffic = Traffic::new(classes).unwrap();
            for id in (0..10_000).chain(u32::MAX - 10..=u32::MAX) {
                traffic.write_frame(id, &mut ours);
                // SAFETY: writes the bytes of one frame.
                unsafe { peers_write_frame(&mut theirs, id, classes) };
                assert_eq!(ours, theirs, "flow {id} of {classes} classes");
            }
        }
    }

    #[test]
    fn flows_of_more_masks_are_the_same_on_both_sides_and_match_their_rules() {
        let stream = FlowStream::uniform(10_000, 1).unwrap();
        let ids = Ids::of_masks(stream.clone(), 12, 60).unwrap();
        let rules: Vec<&str> = ids.rules().lines().collect();
        assert_eq!(rules.len(), 60);
        let traffic = Traffic::default();
        let mut met = std::collections::BTreeSet::new();
        for &id in ids.get() {
            let [mut ours, mut theirs] = [[0; FRAME_LEN], [0xff; FRAME_LEN]];
            crossed(&traffic, 3, id).write_frame(&mut ours);
            // SAFETY: writes the bytes of one frame.
            unsafe { peers_write_frame(&mut theirs, id, 20 | 3 << 8) };
            assert_eq!(ours, theirs, "flow {id}");
            let tuple = crossed(&traffic, 3, id);
            let [source, class] = [tuple.nw_src, tuple.nw_dst].map(u32::leading_ones);
            let [source, class] = [prefix(source), prefix(class)];
            let rule = format!("nw_src={source},nw_dst={class},");
            assert_eq!(rules.iter().filter(|line| line.contains(&rule)).count(), 1, "{rule}");
            met.insert(rule);
        }
        assert_eq!(met.len(), 60);
        assert!(Ids::of_masks(stream.clone(), 12, 50).is_err());
        assert_eq!(Ids::of_masks(stream, 12, 20).unwrap().rules().lines().count(), 20);
    }
}
