//! A partition table of a cluster: the product's, the paper's, or none.

use std::sync::Arc;

use super::node_bits;
use crate::prelude::LabError;
use overbank::partition::setsep::{Config as SetSepConfig, SetSep};
use overbank::partition::{Config, Reader, Replica};

#[derive(Clone)]
pub(super) enum Gpt {
    /// One node needs none, nor do architectures with keys at the ingress.
    None,
    Dense(Reader),
    SetSep(Arc<SetSep>),
}

impl Gpt {
    /// Builds SetSep of as many keys.
    pub(super) fn setsep(
        keys: u64,
        nodes: u64,
        entries: impl Iterator<Item = (u64, u8)> + Clone,
    ) -> Result<Gpt, LabError> {
        let config = SetSepConfig::new(keys as usize, node_bits(nodes));
        let (table, _) = SetSep::build(&config, entries).map_err(LabError::failed)?;
        Ok(Gpt::SetSep(Arc::new(table)))
    }

    /// Builds our table of as many keys; `packed`: for keys that stay.
    pub(super) fn dense(
        keys: u64,
        nodes: u64,
        packed: bool,
        entries: impl Iterator<Item = (u64, u8)> + Clone,
    ) -> Result<Gpt, LabError> {
        let config = Config::new(keys as usize, node_bits(nodes) as usize);
        let config = if packed { config.packed() } else { config };
        let (table, _) = Replica::build(&config, entries).map_err(LabError::failed)?;
        Ok(Gpt::Dense(table.reader()))
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Gpt::None => 0,
            Gpt::Dense(reader) => reader.bytes(),
            Gpt::SetSep(table) => table.bytes(),
        }
    }

    /// Looks up the nodes of a burst.
    #[inline(always)]
    pub(super) fn nodes(&self, hashes: &[u64], nodes: &mut [u8]) {
        match self {
            Gpt::None => nodes.fill(0),
            Gpt::Dense(reader) => reader.lookup_batch(hashes, nodes),
            Gpt::SetSep(table) => table.lookup_batch(hashes, nodes),
        }
    }
}
