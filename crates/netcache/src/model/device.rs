//! The device of the model: the product's table and pipeline with one item, brought to a state of
//! the model before each step.

use crate::entry::Entry;
use crate::pipeline::{Config, Length, Packet, Pipeline, Status, Table, TableError, Verdict};
use crate::slots::VALUE_MAX;
use overbank_wire::netcache::{Key, Message, Stamp};
use std::cell::RefCell;

/// The port of the server.
pub const SERVER: u16 = 7;

/// What the table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    boot: u32,
    /// The last number of an installation.
    install: u32,
    /// The key that has the item.
    key: Option<Key>,
    /// Whether the item rests.
    rests: bool,
}

/// A state of the device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    shape: Shape,
    /// The registers of the item.
    pub status: Status,
    length: Length,
    value: u8,
}

struct Machine {
    shape: Shape,
    table: Table,
    pipeline: Pipeline,
    /// What the table says of any key that has the item.
    entry: Entry,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new());
}

impl Machine {
    fn new() -> Machine {
        let mut table =
            Table::new(Config { items: 1, indexes_log2: 0, passes: 1 }, 0).expect("memory");
        let pipeline = Pipeline::of_one_item(&table);
        let entry = table.install(0, SERVER, 1).expect("room").entry;
        Machine { shape: Device::new(0).shape.having(1, Some(0)), table, pipeline, entry }
    }

    fn bring(&mut self, to: &Device) {
        let Shape { boot, install, key, rests } = to.shape;
        if self.shape != to.shape {
            self.shape.key.map(|key| self.table.evict(key));
            self.table.settle(self.table.resting());
            self.table.begin(boot).expect("empty");
            for nth in 1..=install {
                let installed = self.table.install(key.unwrap_or(0), SERVER, 1).expect("room");
                assert_eq!(installed.entry, self.entry);
                if nth < install || key.is_none() {
                    self.table.evict(key.unwrap_or(0));
                    self.table.settle(usize::from(nth < install || !rests));
                }
            }
            self.shape = to.shape;
        }
        self.pipeline.set(self.entry, (boot, to.status), (to.length, &[to.value]));
    }

    fn state(&self) -> Device {
        let (status, length, value) = self.pipeline.of(self.entry);
        let nothing = Device::new(0);
        // What is not valid is overwritten before it is read.
        let (length, value) =
            if status.is_valid() { (length, value) } else { (nothing.length, nothing.value) };
        Device { shape: self.shape, status, length, value }
    }
}

impl Shape {
    fn having(self, install: u32, key: Option<Key>) -> Shape {
        Shape { install, key, ..self }
    }
}

impl Device {
    /// Returns an empty device in its run `boot`.
    pub fn new(boot: u32) -> Device {
        let shape = Shape { boot, install: 0, key: None, rests: false };
        let length = Length { bytes: 0, absent: false };
        Device { shape, status: Status::of(0, 0), length, value: 0 }
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Machine) -> R) -> R {
        MACHINE.with_borrow_mut(|machine| {
            machine.bring(self);
            let result = act(machine);
            *self = machine.state();
            result
        })
    }

    pub fn boot(&self) -> u32 {
        self.shape.boot
    }

    /// Returns the lowest stamp that an update may still count with.
    pub fn stamp(&self) -> Stamp {
        let Shape { boot, install, key, .. } = self.shape;
        match key {
            Some(_) => Stamp { boot, install, writes: self.status.writes() },
            None => Stamp { boot, install: install + 1, writes: 0 },
        }
    }

    /// Returns the key that has the item.
    pub fn key(&self) -> Option<Key> {
        self.shape.key
    }

    /// Returns the value that is handed out for the key, if any is: a key may have none.
    pub fn value(&self) -> Option<Option<u8>> {
        let value = (!self.length.absent && self.length.bytes > 0).then_some(self.value);
        self.status.is_valid().then_some(value)
    }

    /// Returns what a worker finds of a key.
    pub fn entry(&mut self, key: Key) -> Option<Entry> {
        self.with(|machine| machine.table.entry(key))
    }

    /// Passes a message for which a worker has found this.
    pub fn pass(
        &mut self,
        message: &Message<'_>,
        port: u16,
        entry: Option<Entry>,
    ) -> (Verdict, [u8; VALUE_MAX]) {
        let mut room = [0; VALUE_MAX];
        let packet = Packet { message: *message, port };
        let verdict = self.with(|machine| machine.pipeline.one(&packet, entry, &mut room));
        (verdict, room)
    }

    /// Gives the item to a key; returns the stamp, or `None` while another has it or it rests.
    pub fn install(&mut self, key: Key) -> Option<Stamp> {
        self.with(|machine| match machine.table.install(key, SERVER, 1) {
            Ok(installed) => {
                machine.shape = machine.shape.having(installed.install, Some(key));
                let Shape { boot, install, .. } = machine.shape;
                Some(Stamp { boot, install, writes: 0 })
            }
            Err(TableError::Present | TableError::Items(_)) => None,
            Err(error) => panic!("{error}"),
        })
    }

    /// Takes the item from its key, after which it rests; returns the key and its installation.
    pub fn evict(&mut self) -> Option<(Key, Stamp)> {
        let key = self.shape.key?;
        self.with(|machine| {
            let install = machine.table.evict(key)?;
            machine.shape = Shape { key: None, rests: true, ..machine.shape };
            Some((key, Stamp { boot: machine.shape.boot, install, writes: 0 }))
        })
    }

    /// No worker is in a burst that began before.
    pub fn settle(&mut self) {
        self.with(|machine| {
            machine.table.settle(1);
            machine.shape.rests = false;
        });
    }
}
