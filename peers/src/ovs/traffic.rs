//! The file of flow ids that all contestants read.

// Mapping a file is a call into the C library, and the ids are read from its bytes.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use anyhow::{Context, Result};
use overbank_kit::traffic::{OUTPUT_PORTS, Traffic};
use overbank_kit::workload::FlowStream;

use crate::folder::Folder;

const MAGIC: &[u8; 8] = b"OBFLOWS1";
const HEADER: usize = 16;

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

/// The sequence of flows of one workload.
pub struct Ids {
    _folder: Folder,
    path: PathBuf,
    map: Map,
    traffic: Traffic,
    outputs: &'static [u32],
}

impl Ids {
    /// Draws 2^`log2` ids into a private file; the rules send to the first `outputs` ports.
    pub fn write(mut stream: FlowStream, log2: u32, outputs: usize) -> Result<Ids> {
        let outputs = OUTPUT_PORTS.get(..outputs).filter(|ports| !ports.is_empty());
        let outputs = outputs.context("1 to 4 output ports")?;
        let folder = Folder::new("ids")?;
        let path = folder.path().join("ids");
        let traffic = Traffic::default();
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.write_all(MAGIC)?;
        file.write_all(&traffic.classes().to_ne_bytes())?;
        file.write_all(&log2.to_ne_bytes())?;
        let mut ids = vec![0u32; 1 << log2.min(16)];
        let mut bytes = Vec::new();
        for _ in 0..(1u64 << log2) / ids.len() as u64 {
            stream.fill(&mut ids);
            bytes.clear();
            ids.iter().for_each(|id| bytes.extend_from_slice(&id.to_ne_bytes()));
            file.write_all(&bytes).context("the sequence of flows")?;
        }
        drop(file);
        let map = Map::open(&path)?;
        Ok(Ids { _folder: folder, path, map, traffic, outputs })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the flows' properties.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Returns the output ports.
    pub fn outputs(&self) -> &'static [u32] {
        self.outputs
    }

    /// Returns the built-in rules; with fewer ports, the rules use those in turn.
    pub fn rules(&self) -> String {
        let mut rules = self.traffic.rules();
        for (nth, port) in OUTPUT_PORTS.iter().enumerate().skip(self.outputs.len()) {
            let instead = self.outputs[nth % self.outputs.len()];
            rules = rules.replace(&format!("output:{port}\n"), &format!("output:{instead}\n"));
        }
        rules
    }

    /// Returns the sequence.
    pub fn get(&self) -> &[u32] {
        // SAFETY: the file has whole ids from the aligned byte 16 on, and no one writes to it after
        // `write`: it lies in a folder of our own.
        unsafe {
            let first = self.map.start.as_ptr().add(HEADER).cast::<u32>();
            std::slice::from_raw_parts(first, (self.map.len - HEADER) / 4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::traffic::FRAME_LEN;

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
}
