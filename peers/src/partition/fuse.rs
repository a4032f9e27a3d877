//! `sux`: a static function on 3-wise binary fuse graphs.
//!
//! Graf, Lemire: Binary Fuse Filters: Fast and Smaller Than Xor Filters (2022), with values of any
//! width in place of fingerprints. The crate has no bulk lookup and prefetches nothing: its lookups
//! do not depend on each other, and the processor overlaps them.

use anyhow::Result;
use dsi_progress_logger::no_logging;
use mem_dbg::{MemSize, SizeFlags};
use sux::bits::BitFieldVec;
use sux::func::shard_edge::Fuse3NoShards;
use sux::func::{VBuilder, VFunc};
use sux::traits::{TryIntoUnaligned, Unaligned};

use super::peer::{Sizes, Table};

type Function = VFunc<u64, BitFieldVec<Box<[usize]>>, [u64; 1], Fuse3NoShards>;

pub struct Fuse {
    function: Option<Unaligned<Function>>,
}

impl Fuse {
    pub fn new(_sizes: Sizes) -> Fuse {
        Fuse { function: None }
    }
}

impl Table for Fuse {
    fn build(&mut self, keys: &[u64], values: &[u8]) -> Result<()> {
        self.function = None;
        let values: Vec<usize> = values.iter().map(|&value| usize::from(value)).collect();
        let builder = VBuilder::default().max_num_threads(1);
        let built = Function::try_par_new_with_builder(keys, &values, builder, no_logging![])?;
        self.function = Some(built.try_into_unaligned()?);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.function.as_ref().map_or(0, |of| of.mem_size(SizeFlags::default()) as u64)
    }

    fn look_up(&mut self, keys: &[u64], _burst: usize, values: &mut [u8]) {
        let Some(function) = &self.function else { return };
        for (value, key) in values.iter_mut().zip(keys) {
            *value = function.get(key) as u8;
        }
    }
}
