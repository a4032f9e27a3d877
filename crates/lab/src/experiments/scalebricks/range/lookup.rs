//! Lookups of a key's node: by its range and the exceptions, and by a partition table.

use super::site::{Site, chunk};
use crate::prelude::*;
use overbank::fib::{Config as FibConfig, MacAddr, Reader, Writer};
use overbank::hash::mix;
use overbank::partition::Reader as GptReader;

pub(super) const BURST: usize = 32;

/// A key of both kinds in one table.
pub(super) fn tagged(which: usize, key: u32) -> u64 {
    (which as u64) << 32 | u64::from(key)
}

pub(super) fn hash(which: usize, key: u32) -> u64 {
    mix(tagged(which, key))
}

pub(super) struct Ranges {
    pub(super) owner: Vec<u8>,
    pub(super) exceptions: Option<Reader<MacAddr, u16>>,
}

impl Ranges {
    pub(super) fn new(site: &Site, seed: u64) -> Result<Ranges, LabError> {
        let all: Vec<(u64, u8)> = [0, 1]
            .into_iter()
            .flat_map(|which| site.exceptions(which).map(move |(key, n)| (tagged(which, key), n)))
            .collect();
        if all.is_empty() {
            return Ok(Ranges { owner: site.owner.clone(), exceptions: None });
        }
        let config = FibConfig::entries(all.len()).seed(seed);
        let mut writer = Writer::<MacAddr, u16>::new(&config).map_err(LabError::failed)?;
        for (key, node) in all {
            let key =
                MacAddr::new(key).ok_or_else(|| LabError::Failed("a key is too long".into()))?;
            writer.insert(key, node.into()).map_err(LabError::failed)?;
        }
        Ok(Ranges { owner: site.owner.clone(), exceptions: Some(writer.reader()) })
    }

    pub(super) fn bytes(&self) -> usize {
        self.owner.len() + self.exceptions.as_ref().map_or(0, Reader::bytes)
    }

    pub(super) fn nodes(&self, which: usize, keys: &[u32], nodes: &mut [u8]) {
        for (node, &key) in nodes.iter_mut().zip(keys) {
            *node = self.owner[chunk(key)];
        }
        if let Some(exceptions) = &self.exceptions {
            let (mut wide, mut values) = ([MacAddr::from_bytes([0; 6]); BURST], [0; BURST]);
            for (wide, &key) in wide.iter_mut().zip(keys) {
                let [_, _, bytes @ ..] = tagged(which, key).to_be_bytes();
                *wide = MacAddr::from_bytes(bytes);
            }
            let mut found = exceptions.lookup_batch(&wide[..keys.len()], &mut values);
            while found != 0 {
                let at = found.trailing_zeros() as usize;
                nodes[at] = values[at] as u8;
                found &= found - 1;
            }
        }
    }
}

pub(super) fn by_gpt(gpt: &GptReader, which: usize, keys: &[u32], nodes: &mut [u8]) {
    let mut hashes = [0; BURST];
    hashes.iter_mut().zip(keys).for_each(|(place, &key)| *place = hash(which, key));
    gpt.lookup_batch(&hashes[..keys.len()], nodes);
}
