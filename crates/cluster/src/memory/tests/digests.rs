//! Copies of tables that differ silently.

use super::*;
use crate::table::{Broken, Gpt, NoRoom};
use crate::{Epoch, NodeId};

/// The table of the product, whose copies may have a damaged block: its keys lead elsewhere until
/// an image or the block itself comes.
#[derive(Default)]
struct Damaged {
    table: Dense,
    damaged: Option<u32>,
}

/// Bytes from which on a delta is a whole block.
const BLOCK: usize = 1000;

impl Gpt for Damaged {
    type Writer = <Dense as Gpt>::Writer;
    type Delta = <Dense as Gpt>::Delta;
    type Image = <Dense as Gpt>::Image;

    fn empty() -> Self {
        Self::default()
    }

    fn load(&mut self, image: &Self::Image) -> Result<(), Broken> {
        self.damaged = None;
        self.table.load(image)
    }

    fn apply(&mut self, deltas: &[Self::Delta]) -> Result<(), Broken> {
        self.damaged = self.damaged.filter(|_| deltas.iter().all(|d| Self::bytes(d) < BLOCK));
        self.table.apply(deltas)
    }

    fn lookup(&self, hash: u64) -> NodeId {
        let NodeId(node) = self.table.lookup(hash);
        NodeId(if self.damaged.is_some() { (node + 1) % 3 } else { node })
    }

    fn digest(&self, block: u32) -> Option<u64> {
        self.table.digest(block).map(|digest| digest ^ u64::from(self.damaged == Some(block)))
    }

    fn written(writer: &Self::Writer, block: u32) -> Option<(u64, u32)> {
        Dense::written(writer, block)
    }

    fn republish(writer: &mut Self::Writer, block: u32) -> Option<Self::Delta> {
        Dense::republish(writer, block)
    }

    fn bytes(delta: &Self::Delta) -> usize {
        Dense::bytes(delta)
    }

    fn build(
        settings: &Settings,
        epoch: Epoch,
        keys: impl Iterator<Item = (u64, NodeId)>,
    ) -> Result<Self::Writer, NoRoom> {
        Dense::build(settings, epoch, keys)
    }

    fn image(writer: &Self::Writer) -> Result<Self::Image, NoRoom> {
        Dense::image(writer)
    }

    fn insert(
        writer: &mut Self::Writer,
        hash: u64,
        to: NodeId,
    ) -> Result<Option<Self::Delta>, NoRoom> {
        Dense::insert(writer, hash, to)
    }

    fn remove(writer: &mut Self::Writer, hash: u64) {
        Dense::remove(writer, hash);
    }
}

/// At rest the owners' beats find it; under steady change their batches do. None is found where
/// there is none.
#[test]
fn a_copy_that_differs_is_found_and_mended() {
    let settings = Settings { partitions: 4, node_bits: 3, ..Settings::default() };
    let mut memory = Memory::<Damaged>::new(settings, 3);
    let (mut heard, mut now) = (Vec::new(), 0);
    for steady in [false, true] {
        let mut beats = |memory: &mut Memory<Damaged>, count: u64| {
            for _ in 0..count {
                now += BEAT;
                // Before the beat, so that each owner has something under way in it.
                for nth in 0..if steady { 72 } else { 0 } {
                    let of = (now / BEAT * 7 + nth / 3) % 300;
                    let keys: Arc<[Key]> = Arc::new([Key { hash: mix(of), full: of.into() }]);
                    let (session, context) = (SessionId(mix(of)), Arc::new(now.to_le_bytes()));
                    let update = Request::Update { session, keys, context, before: None };
                    memory.request(NodeId(nth as u8 % 3), 1000, update);
                }
                memory.advance(now, &mut heard);
            }
        };
        beats(&mut memory, 20);
        if !steady {
            for nth in 0..300 {
                let keys = Arc::new([Key { hash: mix(nth), full: nth.into() }]);
                let request = Request::Establish { keys, context: Arc::new([]), to: None };
                memory.request(NodeId(0), nth, request);
            }
        }
        beats(&mut memory, 60);
        let before: Vec<u64> =
            (0..3).map(|at| memory.node(NodeId(at)).expect("it runs").differences()).collect();
        assert_eq!(before, [0, u64::from(steady) * 4, 0], "found where there is none");
        for own in (0..4).map(Partition) {
            let node = memory.nodes[1].as_mut().expect("it runs");
            node.table_mut(own).damaged = Some(0);
            let mut left = 100;
            while memory.nodes[1].as_mut().expect("it runs").table_mut(own).damaged.is_some() {
                left -= 1;
                assert!(left > 0, "{own:?} stays damaged, steady: {steady}");
                beats(&mut memory, 1);
            }
        }
        let found = memory.node(NodeId(1)).expect("it runs").differences();
        assert_eq!(found, before[1] + 4, "each once");
    }
}
